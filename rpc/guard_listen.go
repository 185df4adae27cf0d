// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/log"
)

const (
	// Request headers of one request, in bytes. net/http reads 4 KiB more than it
	// is told before it answers 431.
	maxHeaderBytes = 64<<10 - 4<<10

	// h2Receive is the flow-control window of an HTTP/2 connection, in bytes: what
	// its client may send that nobody has read yet.
	h2Receive = 256 << 10

	// stopGrace is how long a server that stops lets its clients take their last
	// answers. The node gives up on it after 5 s.
	stopGrace = 4 * time.Second

	// refusedConns is how many refused connections are answered at once. More are
	// closed without a word.
	refusedConns = 256

	// proxyHint is the number of connections from clients that cannot be told
	// apart at which the operator is told.
	proxyHint = 500
)

// PrepareServer puts srv, whose listener is l, under the guard's connection
// limits. It must be called before srv serves, on the listener it then returns.
// The server's connections count against the node's; headers beyond 64 KiB are
// answered with 431; an HTTP/2 connection has 100 streams and 256 KiB of receive
// buffer, and ends when it resets streams faster than it lets them finish. When
// srv shuts down the contexts of its requests are cancelled at once, and what is
// still connected after 4 s is closed.
//
// A nil guard and a trusted view change nothing but the end: on a trusted server
// the contexts are cancelled, too.
func (g *Guard) PrepareServer(srv *http.Server, l net.Listener) net.Listener {
	if g = g.orStandIn(); g == nil {
		return l
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	gl := &guardListener{Listener: l, g: g, conns: make(map[*trackedConn]struct{}),
		refusing: make(chan struct{}, refusedConns), yield: runtime.Gosched, headers: headerPauses{clock: g.clock}}
	srv.BaseContext = func(net.Listener) context.Context { return ctx }
	srv.ConnContext = withHTTPConn
	srv.ConnState = func(c net.Conn, state http.ConnState) {
		if tc, ok := c.(*trackedConn); ok {
			tc.setState(state)
		}
	}
	srv.RegisterOnShutdown(func() {
		cancel(errBodyShutdown)
		gl.closeNew()
		g.clock.AfterFunc(stopGrace, gl.closeAll)
	})
	if !g.enforces() {
		return gl
	}
	srv.MaxHeaderBytes = maxHeaderBytes
	srv.HTTP2 = &http.HTTP2Config{
		MaxConcurrentStreams:          h2Streams,
		MaxReceiveBufferPerConnection: h2Receive,
		MaxReceiveBufferPerStream:     h2Receive,
	}
	return gl
}

// guardListener accepts connections as far as there are places for them.
type guardListener struct {
	net.Listener
	g        *Guard
	refusing chan struct{}
	yield    func() // has a reader let others run
	headers  headerPauses
	hinted   sync.Once

	mu     sync.Mutex
	conns  map[*trackedConn]struct{}
	closed bool
}

// Accept implements net.Listener.
func (l *guardListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tc := &trackedConn{Conn: conn, l: l, fresh: true}
		if l.g.untrusted() {
			key := l.g.keys.keyFor(conn.RemoteAddr().String(), nil)
			if tc.place = l.g.conns.add(key, tc.evict); tc.place == nil {
				l.refuse(conn)
				continue
			}
			if key.perConn() && l.g.conns.active.Load() >= proxyHint {
				l.hinted.Do(func() {
					log.Info("Many RPC connections from local addresses, which count as proxies: no limit per client applies to them",
						"connections", proxyHint, "change", "--rpc.client.trusted-proxies, --rpc.client.local")
				})
			}
		}
		if !l.track(tc) {
			tc.Close()
			continue
		}
		return tc, nil
	}
}

func (l *guardListener) track(tc *trackedConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.conns[tc] = struct{}{}
	return true
}

func (l *guardListener) untrack(tc *trackedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, tc)
}

// list returns the connections for which pick holds.
func (l *guardListener) list(pick func(*trackedConn) bool) (conns []*trackedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for tc := range l.conns {
		if pick(tc) {
			conns = append(conns, tc)
		}
	}
	return conns
}

// closeNew closes connections on which no request has begun: Go's server waits 5 s
// for those.
func (l *guardListener) closeNew() {
	for _, tc := range l.list(func(tc *trackedConn) bool { return tc.fresh }) {
		tc.Close()
	}
}

func (l *guardListener) closeAll() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	for _, tc := range l.list(func(*trackedConn) bool { return true }) {
		tc.Close()
	}
}

const tooManyConns = `{"jsonrpc":"2.0","id":null,"error":{"code":-32005,"message":"too many connections"}}`

var refusedConnReply = fmt.Appendf(nil, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"+
	"Retry-After: 1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(tooManyConns), tooManyConns)

// takePlace makes the connection of a WebSocket handshake one of the client's that the
// handshake names, and reports whether that client may have another.
func takePlace(r *http.Request, key clientKey) bool {
	tc, ok := r.Context().Value(httpConnKey{}).(*trackedConn)
	return !ok || tc.place == nil || tc.place.assign(key)
}

// refuse answers a connection that has no place with 503. It waits a moment for the
// request, since a client that has sent none takes no answer for it.
func (l *guardListener) refuse(conn net.Conn) {
	select {
	case l.refusing <- struct{}{}:
	default:
		conn.Close()
		return
	}
	go func() {
		defer func() { <-l.refusing }()
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(2 * time.Second))
		var buf [4 << 10]byte
		if _, err := conn.Read(buf[:]); err != nil {
			return
		}
		conn.Write(refusedConnReply)
		if cw, ok := conn.(interface{ CloseWrite() error }); ok {
			cw.CloseWrite()
		}
		for {
			if _, err := conn.Read(buf[:]); err != nil {
				return
			}
		}
	}()
}

// trackedConn is an accepted connection that holds a place until it is closed.
type trackedConn struct {
	net.Conn
	l     *guardListener
	place *connPlace // nil on trusted servers
	pace  readPace
	reset resetFollower
	once  sync.Once

	fresh bool // no request has begun; guarded by l.mu
}

// Read implements net.Conn.
func (c *trackedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && c.place != nil {
		c.place.touch()
		if c.reset.state != resetOff && c.reset.feed(p[:n], c.l.g.clock.Now()) && !c.l.g.cfg.DryRun {
			c.l.g.connResets.Add(1)
			c.Close()
			return 0, net.ErrClosed
		}
		switch {
		case c.pace.long(n, c.reset.state == resetOff):
			c.l.headers.pause()
		case n >= yieldRead:
			c.l.yield()
		}
	}
	return n, err
}

// Write implements net.Conn.
func (c *trackedConn) Write(p []byte) (int, error) {
	if c.place != nil {
		c.place.touch()
		if c.reset.sent.on.Load() {
			c.reset.sent.feed(p)
		}
	}
	return c.Conn.Write(p)
}

// Close implements net.Conn.
func (c *trackedConn) Close() error {
	c.once.Do(func() {
		c.l.untrack(c)
		if c.place != nil {
			c.place.remove()
		}
	})
	return c.Conn.Close()
}

// CloseWrite lets the server end a connection whose client is still sending.
func (c *trackedConn) CloseWrite() error {
	if cw, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return cw.CloseWrite()
	}
	return nil
}

// NetConn returns the connection underneath.
func (c *trackedConn) NetConn() net.Conn { return c.Conn }

// evict closes the connection for another one. Whoever reads or writes it notices.
func (c *trackedConn) evict() { c.Close() }

// setState follows the server: a connection with a request on it is busy. One that
// was taken over for WebSocket is idle whenever nothing passes.
func (c *trackedConn) setState(state http.ConnState) {
	if state != http.StateNew {
		c.l.mu.Lock()
		c.fresh = false
		c.l.mu.Unlock()
	}
	c.pace.header(state == http.StateNew || state == http.StateIdle)
	if c.place != nil {
		c.place.setBusy(state == http.StateActive)
	}
}
