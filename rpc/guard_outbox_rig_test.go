// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
)

// What the tests of the outbox, of the queues in it and of its flusher share.

var testLimits = subLimits{events: 8, bytes: 1 << 20, connBytes: 1 << 21, subs: 16}

// fakeConn is a connection whose client takes what the test lets it take.
type fakeConn struct {
	mu      sync.Mutex
	cond    sync.Cond
	tickets int // sends that may still happen; negative: any number
	failing error
	sending bool
	hurried time.Duration
	aborted bool
	written []byte
	current []byte // of the send in progress
	msgs    []string
	parsed  int // bytes of written that msgs stands for
	sends   int
}

func newFakeConn() *fakeConn {
	c := new(fakeConn)
	c.cond.L = &c.mu
	return c
}

func (c *fakeConn) send(b *frameBatch) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sending {
		panic("two writers")
	}
	c.sending = true
	for _, buf := range b.buffers() {
		c.current = append(c.current, buf...)
	}
	defer func() { c.sending, c.current = false, nil }()
	for c.tickets == 0 && !c.aborted && c.failing == nil && c.hurried == 0 {
		c.cond.Wait()
	}
	switch {
	case c.aborted:
		return errors.New("aborted")
	case c.failing != nil:
		return c.failing
	case c.tickets == 0:
		return errors.New("hurried: timeout")
	}
	if c.tickets > 0 {
		c.tickets--
	}
	c.written = append(c.written, c.current...)
	c.sends++
	return nil
}

// trySend implements outboxConn: a send that happens at once, or not at all.
func (c *fakeConn) trySend(b *frameBatch) (bool, error) {
	c.mu.Lock()
	stuck := c.tickets == 0 && !c.aborted && c.failing == nil
	c.mu.Unlock()
	if stuck || b.whole() == nil {
		return false, nil
	}
	return true, c.send(b)
}

func (c *fakeConn) hurry(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hurried = d
	c.cond.Broadcast()
}

func (c *fakeConn) abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.aborted = true
	c.cond.Broadcast()
}

func (c *fakeConn) let(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tickets += n
	c.cond.Broadcast()
}

func (c *fakeConn) letAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tickets = -1
	c.cond.Broadcast()
}

func (c *fakeConn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failing = err
	c.cond.Broadcast()
}

func (c *fakeConn) messages(f framing) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	msgs, err := parseMessages(f, c.written)
	if err != nil {
		panic(err)
	}
	return msgs
}

func splitMessages(t *testing.T, f framing, data []byte) []string {
	t.Helper()
	msgs, err := parseMessages(f, data)
	require.NoError(t, err)
	return msgs
}

// parseMessages takes a stream apart. Control frames come out as "op:payload".
func parseMessages(f framing, data []byte) (msgs []string, err error) {
	for len(data) > 0 {
		if f == lineFraming {
			line, rest, ok := bytes.Cut(data, []byte("\n"))
			if !ok {
				return nil, errors.New("last line does not end")
			}
			msgs, data = append(msgs, string(line)), rest
			continue
		}
		if len(data) < 2 || data[0]&0x80 == 0 || data[1]&0x80 != 0 {
			return nil, errors.New("not an unmasked whole frame")
		}
		op, n, head := int(data[0]&0xf), int(data[1]), 2
		switch n {
		case 126:
			n, head = int(binary.BigEndian.Uint16(data[2:])), 4
		case 127:
			n, head = int(binary.BigEndian.Uint64(data[2:])), 10
		}
		if len(data) < head+n {
			return nil, errors.New("last frame does not end")
		}
		body := string(data[head : head+n])
		if op != websocket.TextMessage {
			body = fmt.Sprintf("%d:%s", op, body)
		}
		msgs, data = append(msgs, body), data[head+n:]
	}
	return msgs, nil
}

// drops records what an outbox reports.
type drops struct {
	mu  sync.Mutex
	all []dropReport
	ids []ID
}

func (d *drops) dropped(s *clientNotifier, report dropReport) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, report)
	d.ids = append(d.ids, s.id)
}

func (d *drops) reports() []dropReport {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]dropReport(nil), d.all...)
}

func newTestOutbox(t testing.TB, conn outboxConn, f framing, limits subLimits) *outbox {
	o, err := newOutbox(conn, f, limits, new(drops))
	require.NoError(t, err)
	t.Cleanup(func() { o.fail(errOutboxClosed) }) // or a stuck writer would stay
	return o
}

// testOutbox runs f in a bubble with an outbox whose client takes nothing yet.
func testOutbox(t *testing.T, f func(t *testing.T, conn *fakeConn, o *outbox)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		conn := newFakeConn()
		f(t, conn, newTestOutbox(t, conn, wsFraming, testLimits))
	})
}

func dropsOf(o *outbox) []dropReport { return o.events.(*drops).reports() }

func heldSub(o *outbox, id ID) *clientNotifier {
	if !o.reserve() {
		panic("no place")
	}
	s := o.newNotifier("eth")
	s.describe("logs", false)
	s.bind(id)
	return s
}

func liveSub(o *outbox, id ID) *clientNotifier {
	s := heldSub(o, id)
	s.activate()
	return s
}

// textEvent makes an event whose results are the given strings.
func textEvent(block uint64, texts ...string) *Event {
	var results []json.RawMessage
	for _, text := range texts {
		result, err := EncodeResult(text)
		if err != nil {
			panic(err)
		}
		results = append(results, result)
	}
	return NewEvent(block, results)
}

func textReply(id int) *jsonrpcMessage {
	return &jsonrpcMessage{Version: vsn, ID: json.RawMessage(fmt.Sprint(id)), Result: json.RawMessage("true")}
}

func notification(id ID, text string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"eth_subscription","params":{"subscription":"%s","result":"%s"}}`, id, text)
}

// requireEmpty checks that an outbox holds nothing.
func requireEmpty(t testing.TB, o *outbox) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	require.Zero(t, o.bytes, "bytes")
	require.Zero(t, o.places, "places")
	require.Empty(t, o.subs)
	require.Empty(t, o.fresh)
	require.Zero(t, o.queue.len())
}
