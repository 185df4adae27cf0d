// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"time"
)

// hangUpInterval is how often the socket of a connection that is not being read is
// looked at.
const hangUpInterval = 250 * time.Millisecond

// yieldFlight is the number of calls in flight from which on a connection's reader is
// not in a hurry to start more. It is the length that each connection may add to the
// queue of what is ready to run: with 64 that never wait for an answer, at 8 a polite
// call took 84 ms (p99), at 2 or 1 it takes 54.
const yieldFlight = 2

var errHungUp = errors.New("client hung up")

// attachReader makes the connection's messages pass through a reader of their own, if
// its client is not trusted.
func (c *guardCodec) attachReader(h *handler) {
	if !c.g.enforces() {
		return
	}
	c.reader = &streamReader{
		window:  newStreamWindow(c.g.cfg.Admission.InFlight),
		inner:   c.ServerCodec.readBatch,
		limit:   h.batchRequestLimit,
		prepare: c.prepare,
		charge:  c.chargeMessage,
		gone:    c.clientGone,
		closed:  c.closed(),
		parsing: c.g.parsing,
		yield:   runtime.Gosched,
	}
	if ws, ok := c.ServerCodec.(*websocketCodec); ok {
		c.reader.conn = ws.conn.UnderlyingConn()
		paceControl(ws.conn, c.conn)
		if h.batchRequestLimit > 0 {
			ws.cutBatches(h.batchRequestLimit, c.reader.beginParse)
		}
	}
}

// readGuarded reads the next message that may be started.
func (c *guardCodec) readGuarded() ([]*jsonrpcMessage, bool, error) {
	if c.reader != nil {
		return c.reader.read()
	}
	msgs, batch, err := c.ServerCodec.readBatch()
	if err != nil {
		c.clientGone(err)
	} else {
		c.conn.taken().close() // of a dry run
		c.prepare(msgs, batch)
	}
	return msgs, batch, err
}

// callDone is called when the goroutine that served a message ends.
func (c *guardCodec) callDone() {
	if c.reader != nil {
		c.reader.window.done()
	}
}

// clientGone cancels what runs for a client whose connection can be read no more,
// before upstream waits for just that to end. Only on WebSocket is that departure: on
// a raw stream a client may close one direction and wait for its answers. And a client
// that sent no JSON is told so, and waits for its answers too: they are the last it
// gets, but nobody reads any more to see it leave, so the socket is looked at.
func (c *guardCodec) clientGone(err error) bool {
	ws, ok := c.ServerCodec.(*websocketCodec)
	if !ok {
		return false
	}
	if _, invalid := err.(*json.SyntaxError); invalid {
		go func() {
			if awaitHangUp(ws.conn.UnderlyingConn(), nil, c.closed()) == errHungUp {
				c.h.cancelRoot()
			}
		}()
		return false
	}
	c.h.cancelRoot()
	return true
}

// awaitHangUp looks at the socket of a connection that nobody reads. It returns errHungUp
// if the client has left, io.EOF if the server closed the connection, and nil if it is
// read again.
func awaitHangUp(conn net.Conn, again <-chan struct{}, closed <-chan any) error {
	tick := time.NewTicker(hangUpInterval)
	defer tick.Stop()
	for {
		select {
		case <-again:
			return nil
		case <-closed:
			return io.EOF
		case <-tick.C:
			if conn != nil && hungUp(conn) {
				return errHungUp
			}
		}
	}
}

// prepare looks at a message of an untrusted client before anybody else does.
func (c *guardCodec) prepare(msgs []*jsonrpcMessage, batch bool) {
	if !c.g.untrusted() {
		return
	}
	if limit := c.h.batchRequestLimit; batch && limit != 0 && len(msgs) > limit {
		c.g.admission.countOversizedBatch()
	}
	if !c.g.boundsIDs() {
		return
	}
	hideOversizedIDs(msgs...) // before they are traced or logged
}

// streamReader reads the messages of one stream connection of an untrusted client
// within its window. As long as slots are free it adds nothing to a read; from the
// first message that finds none on, a goroutine of its own reads ahead.
//
// From yieldFlight calls in flight on, it lets others run before each message. A reader
// that finds 50 messages at once would start 50 goroutines before anybody else runs, and
// 200 of them 10000: whoever became ready then had all of those in front. Now it is one
// message of each.
type streamReader struct {
	window  *streamWindow
	inner   func() ([]*jsonrpcMessage, bool, error)
	limit   int // elements of a batch, 0: any
	prepare func(msgs []*jsonrpcMessage, batch bool)
	charge  func(calls bool) // takes over what the message read last is charged
	gone    func(error) bool // called when reading fails; reports whether the client has left
	closed  <-chan any
	yield   func()        // lets others run
	conn    net.Conn      // nil: hang-ups show in reads only
	ahead   bool          // the goroutine reads
	parsing chan struct{} // slots for large messages, of the whole guard
	parses  bool          // holds one of them
}

// beginParse waits for leave to parse a large message that has come in whole, as large
// bodies do (see requestScope.beginParse). The slot is held until the message is parsed.
func (r *streamReader) beginParse(size int) error {
	if size <= budgetStep {
		return nil
	}
	select {
	case r.parsing <- struct{}{}:
		r.parses = true
		return nil
	default:
	}
	select {
	case r.parsing <- struct{}{}:
	case <-r.closed:
		return net.ErrClosed
	}
	r.parses = true
	r.readsAgain()
	return nil
}

// readsAgain takes back the deadline of a pong that was not read because nobody read.
func (r *streamReader) readsAgain() {
	if r.conn != nil {
		r.conn.SetReadDeadline(time.Time{})
	}
}

func (r *streamReader) endParse() {
	if r.parses {
		r.parses = false
		<-r.parsing
	}
}

func (r *streamReader) read() ([]*jsonrpcMessage, bool, error) {
	for !r.ahead {
		if r.window.inUse() >= yieldFlight {
			r.yield()
		}
		m, err := r.next()
		if err != nil {
			return nil, false, err
		}
		if !m.calls || r.window.start() {
			return m.msgs, m.batch, nil
		}
		r.window.push(m)
		r.ahead = true
		go r.readAhead()
	}
	for {
		m, ok, err := r.window.pop()
		if ok || err != nil {
			return m.msgs, m.batch, err
		}
		<-r.window.wake
	}
}

// next reads one message.
func (r *streamReader) next() (streamMessage, error) {
	msgs, batch, err := r.inner()
	r.endParse()
	if err != nil {
		if r.gone(err) {
			r.window.fail(err)
		} else {
			r.window.end(err)
		}
		return streamMessage{}, err
	}
	r.prepare(msgs, batch)
	m := streamMessage{msgs: msgs, batch: batch, calls: r.startsCall(msgs, batch)}
	r.charge(m.calls)
	for _, msg := range msgs {
		m.size += messageOverhead + int64(len(msg.ID)+len(msg.Method)+len(msg.Params)+len(msg.Result)+msg.errorSize())
	}
	return m, nil
}

// messageOverhead is what a message holds beside its bytes.
const messageOverhead = 256

// startsCall reports whether upstream starts a goroutine for a message.
func (r *streamReader) startsCall(msgs []*jsonrpcMessage, batch bool) bool {
	if batch && (len(msgs) == 0 || r.limit != 0 && len(msgs) > r.limit) {
		return true // for the answer
	}
	for _, msg := range msgs {
		if !msg.isResponse() && !(msg.isNotification() && strings.HasSuffix(msg.Method, notificationMethodSuffix)) {
			return true
		}
	}
	return false
}

func (r *streamReader) readAhead() {
	for {
		if r.window.full() && !r.pause() {
			return
		}
		m, err := r.next()
		if err != nil {
			return
		}
		r.window.push(m)
	}
}

// pause waits until there is room to read on. A client that leaves meanwhile is not
// seen by a read, so the socket is looked at.
func (r *streamReader) pause() bool {
	for r.window.full() {
		switch err := awaitHangUp(r.conn, r.window.readAgain, r.closed); err {
		case nil:
		case errHungUp:
			r.gone(err)
			fallthrough
		default:
			r.window.fail(err)
			return false
		}
	}
	r.readsAgain()
	return true
}
