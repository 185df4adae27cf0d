// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"encoding/json"
	"reflect"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
	"github.com/ethereum/go-ethereum/log"
	"github.com/gorilla/websocket"
)

// guardCodec wraps the codec of a stream connection (WebSocket, IPC, in-process),
// so that every message in either direction passes the guard.
//
// What goes out goes through the outbox, past the codec's own writing: that one
// writes each message in the caller's time, under a lock that its close and its
// pings take too. In-process connections have no outbox. They deliver as upstream
// does, because their clients are the node itself and are never too slow, only busy.
type guardCodec struct {
	ServerCodec
	g         *Guard
	key       clientKey
	server    *Server       // nil: of none that could stop
	leaves    sync.Once     // the workers
	conn      *guardConn    // nil: no WebSocket
	bodies    bodyQueue     // what messages are charged whose calls have not started
	out       *outbox       // nil: as upstream
	keepalive *keepalive    // nil: no WebSocket
	stall     *stallConn    // nil: nobody watches how it takes what it is sent
	h         *handler      // set by attachGuard before the first message is read
	reader    *streamReader // likewise; nil: of a client that is trusted
}

// stallTimeout is how long an untrusted client may take for sendPiece. It stands in
// for upstream's 10 s a message, which a large message to a slow but steady reader
// exceeds and a drip reader never does.
const stallTimeout = 60 * time.Second

// wrapCodec returns codec as the guard serves it.
func (g *Guard) wrapCodec(codec ServerCodec) ServerCodec {
	g = g.orStandIn()
	if g == nil {
		return codec
	}
	c := &guardCodec{ServerCodec: codec, g: g}
	if g.untrusted() {
		c.key = g.keys.keyFor(codec.peerInfo().RemoteAddr, nil)
	}
	if g.mode != modeInProc {
		c.openOutbox()
	}
	return c
}

// openOutbox takes over writing, if the codec is one of the package's own.
func (c *guardCodec) openOutbox() {
	timeout := defaultWriteTimeout
	if c.g.untrusted() {
		timeout = stallTimeout
	}
	switch inner := c.ServerCodec.(type) {
	case *websocketCodec:
		conn, ok := inner.conn.UnderlyingConn().(*guardConn)
		if !ok {
			return
		}
		c.conn = conn
		if c.g.untrusted() {
			c.key = conn.key // by the header of its handshake
			inner.limitReads(c.g.cfg.Body.WSLimit)
		}
		out := newSocketOut(conn.Conn, timeout)
		if c.g.enforces() {
			c.watchStall(out, conn.Conn)
		}
		c.out = c.newOutbox(out, wsFraming)
		conn.out.Store(c.out)
		c.keepalive = newKeepalive(c.out, inner.conn, inner.pingReset, mclock.System{})
	case *jsonCodec:
		conn, ok := inner.conn.(deadlineWriter)
		if !ok {
			return
		}
		c.out = c.newOutbox(newSocketOut(conn, timeout), lineFraming)
	}
}

func (c *guardCodec) newOutbox(conn outboxConn, f framing) *outbox {
	o, err := newOutbox(conn, f, c.g.subLimits(), c)
	if err != nil {
		panic("rpc: " + err.Error()) // the configuration was validated
	}
	o.flusher = c.g.flusher
	return o
}

// subLimits returns the limits of a connection's subscriptions. Trusted clients
// may have any number of them, and results of any size; what waits for one that
// does not read is bounded all the same.
func (g *Guard) subLimits() subLimits {
	cfg := &g.cfg.Sub
	l := subLimits{
		events:    cfg.Events,
		bytes:     cfg.Bytes,
		connBytes: cfg.ConnBytes,
		notice:    cfg.Overflow == "unsubscribe",
		dryRun:    g.cfg.DryRun,
		books:     &g.subs,
	}
	if g.untrusted() {
		l.subs = cfg.Max
		l.result = g.cfg.Reply.Max
		l.kept = cfg.Budget
	}
	return l
}

// attachGuard makes a handler known to the connection, or to the HTTP request, that
// it serves.
func (h *handler) attachGuard() {
	c, ok := h.conn.(*guardCodec)
	if !ok {
		if request := requestOf(h.conn); request != nil {
			h.conn = request.attach(h.conn)
			h.traceQuietly()
		}
		return
	}
	c.h = h
	h.traceQuietly()
	c.attachReader(h)
	if c.out != nil {
		h.unsubscribeCb = newCallback(reflect.Value{}, reflect.ValueOf(h.unsubscribeGuarded))
	}
}

// readBatch reads the next message. A WebSocket client whose connection cannot be
// read has gone, so nothing is written to it any more; on a raw stream it may have
// closed one direction only and wait for answers.
func (c *guardCodec) readBatch() (msgs []*jsonrpcMessage, batch bool, err error) {
	if msgs, batch, err = c.readGuarded(); batch {
		markBatch(msgs)
	}
	if _, invalid := err.(*json.SyntaxError); err != nil && !invalid && c.keepalive != nil {
		if frame, refused := c.conn.refusal(&c.g.bodyBooks); refused {
			c.out.sayGoodbye(frame, refusalTime)
		} else {
			c.out.fail(errOutboxClosed)
		}
	}
	return msgs, batch, err
}

// close closes the connection in good order, without waiting for a writer that is
// stuck: by the time the codec takes its locks, nobody holds them.
func (c *guardCodec) close() {
	if c.out != nil {
		if c.keepalive != nil {
			c.keepalive.stop()
		}
		if c.server != nil {
			c.leaves.Do(c.g.workers.closed)
			for _, other := range c.g.streams.remove(c.server, c) {
				other.out.sayGoodbye(closeFrame(websocket.CloseNormalClosure, ""), closeGrace)
			}
		}
		grace, end := c.g.closing.begin()
		c.out.sayGoodbye(closeFrame(websocket.CloseNormalClosure, ""), grace)
		<-c.out.done
		end()
	}
	c.ServerCodec.close()
	c.bodies.close()
}

// dropped tears a subscription down whose client does not keep up: out of the
// handler's table, and by closing its Err channel out of wherever its events come
// from.
func (c *guardCodec) dropped(s *clientNotifier, report dropReport) {
	c.g.subs.countDrop(report.Reason)
	if !c.g.cfg.DryRun {
		c.h.endSubscription(s.id)
	}
	info := c.peerInfo()
	log.Warn("Slow RPC subscriber dropped", "peer", info.RemoteAddr, "transport", info.Transport, "kind", s.kind(),
		"id", s.id, "reason", report.Reason, "queued", report.Queued, "limit", report.Limit, "lastblock", report.LastBlock)
}
