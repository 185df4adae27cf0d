// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
)

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

func TestGuardOutboxRefusesNonsense(t *testing.T) {
	for _, limits := range []subLimits{
		{},
		{events: 0, bytes: 1, connBytes: 1},
		{events: 1, bytes: 0, connBytes: 1},
		{events: 1, bytes: 2, connBytes: 1},
		{events: 1, bytes: 1, connBytes: 1, subs: -1},
		{events: 1, bytes: 1, connBytes: 1, result: -1},
	} {
		_, err := newOutbox(newFakeConn(), wsFraming, limits, new(drops))
		require.Error(t, err, "%+v", limits)
	}
	_, err := newOutbox(nil, wsFraming, testLimits, new(drops))
	require.Error(t, err)
}

// TestGuardRepliesAndNotificationsInOneOrder: what is queued first leaves first, and
// what waits leaves in one send.
func TestGuardRepliesAndNotificationsInOneOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := newFakeConn()
		o := newTestOutbox(t, conn, wsFraming, testLimits)
		s := liveSub(o, "0x1")

		require.NoError(t, s.notify(textEvent(0, "a"), true))
		synctest.Wait()
		require.NoError(t, s.notify(textEvent(0, "b", "c"), true))
		replied := make(chan error)
		go func() { replied <- o.writeReply(textReply(1), nil) }()
		synctest.Wait()
		require.NoError(t, s.notify(textEvent(0, "d"), true))
		select {
		case <-replied:
			t.Fatal("reply returned before it was written")
		default:
		}
		conn.let(2)
		require.NoError(t, <-replied)
		synctest.Wait()
		require.Equal(t, []string{
			notification("0x1", "a"), notification("0x1", "b"), notification("0x1", "c"),
			`{"jsonrpc":"2.0","id":1,"result":true}`, notification("0x1", "d"),
		}, conn.messages(wsFraming))
		require.Equal(t, 2, conn.sends)
		o.fail(errOutboxClosed)
		requireEmpty(t, o)
	})
}

// TestGuardCallerWritesItsOwnReplyOnly: the caller of a reply starts the writer, but is
// not kept for what others queue meanwhile.
func TestGuardCallerWritesItsOwnReplyOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := newFakeConn()
		o := newTestOutbox(t, conn, wsFraming, testLimits)
		s := liveSub(o, "0x1")
		replied := make(chan error)
		go func() { replied <- o.writeReply(nil, []*jsonrpcMessage{textReply(1), textReply(2)}) }()
		synctest.Wait()
		require.NoError(t, s.notify(textEvent(0, "a"), true))
		conn.let(1)
		require.NoError(t, <-replied) // although "a" is stuck
		synctest.Wait()
		conn.let(1)
		synctest.Wait()
		require.Len(t, conn.messages(wsFraming), 2)
	})
}

// TestGuardOneBlockIsOneWrite: the logs of one block to one subscriber are many frames
// and few sends.
func TestGuardOneBlockIsOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := newFakeConn()
		conn.letAll()
		o := newTestOutbox(t, conn, wsFraming, testLimits)
		s := liveSub(o, "0x1")
		texts := make([]string, 100)
		for i := range texts {
			texts[i] = strings.Repeat("x", 100)
		}
		require.NoError(t, s.notify(textEvent(7, texts...), true))
		synctest.Wait()
		require.Len(t, conn.messages(wsFraming), 100)
		require.Equal(t, 1, conn.sends)
		require.EqualValues(t, 7, s.written)
	})
}

// TestGuardLargeEventInManySends: an event larger than a batch is sent in several, and
// control frames go between them.
func TestGuardLargeEventInManySends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := newFakeConn()
		o := newTestOutbox(t, conn, wsFraming, testLimits)
		s := liveSub(o, "0x1")
		texts := make([]string, 1000)
		for i := range texts {
			texts[i] = fmt.Sprint(i) + strings.Repeat("x", 300)
		}
		require.NoError(t, s.notify(textEvent(7, texts...), true))
		require.NoError(t, s.notify(textEvent(8, "next"), true))
		synctest.Wait()
		o.sendControl(controlPong, []byte{0x8a, 1, '1'})
		o.sendControl(controlPong, []byte{0x8a, 1, '2'}) // stands for both
		conn.letAll()
		synctest.Wait()
		msgs := conn.messages(wsFraming)
		require.Len(t, msgs, 1002)
		pong := 0
		for i, msg := range msgs {
			if msg == "10:2" {
				pong = i
			}
		}
		require.NotZero(t, pong, "pong missing or in front")
		require.Less(t, pong, 500)
		msgs = append(msgs[:pong], msgs[pong+1:]...)
		for i, text := range texts {
			require.Equal(t, notification("0x1", text), msgs[i])
		}
		require.Equal(t, notification("0x1", "next"), msgs[1000])
		require.Greater(t, conn.sends, 3)
	})
}

// TestGuardGoodbyeBetweenFrames: a send in progress may end, then the close frame goes
// out, and nothing after it.
func TestGuardGoodbyeBetweenFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := newFakeConn()
		o := newTestOutbox(t, conn, wsFraming, testLimits)
		s := liveSub(o, "0x1")
		require.NoError(t, s.notify(textEvent(0, "a"), true))
		synctest.Wait()
		require.NoError(t, s.notify(textEvent(0, "never sent"), true))
		conn.letAll()
		o.sayGoodbye(closeFrame(1013, "why"), time.Second)
		<-o.done
		synctest.Wait()
		msgs := conn.messages(wsFraming)
		require.LessOrEqual(t, len(msgs), 3)
		require.Equal(t, "8:\x03\xf5why", msgs[len(msgs)-1])
		require.True(t, conn.aborted)
		require.Error(t, o.writeReply(textReply(1), nil))
		require.ErrorIs(t, s.notify(textEvent(0, "b"), true), errSubscriptionOver)
		requireEmpty(t, o)
	})
}

// TestGuardGoodbyeBehindStuckWriter: mid-frame nothing can be said; the connection is
// closed when the grace is over, and whoever says goodbye does not wait for that.
func TestGuardGoodbyeBehindStuckWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := newFakeConn()
		o := newTestOutbox(t, conn, wsFraming, testLimits)
		s := liveSub(o, "0x1")
		require.NoError(t, s.notify(textEvent(0, "a"), true))
		synctest.Wait()
		replied := make(chan error)
		go func() { replied <- o.writeReply(textReply(1), nil) }()
		synctest.Wait()
		o.sayGoodbye(closeFrame(1013, "why"), time.Second)
		<-o.done
		synctest.Wait()
		require.Error(t, <-replied)
		require.Empty(t, conn.messages(wsFraming))
		require.Equal(t, time.Second, conn.hurried)
		require.True(t, conn.aborted)
		require.Empty(t, dropsOf(o), "a goodbye is no drop")
		requireEmpty(t, o)
	})
}

// TestGuardFailedWriteDropsWhatItCarried: the subscription whose event was on its way
// lost it. The others end with the connection.
func TestGuardFailedWriteDropsWhatItCarried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := newFakeConn()
		o := newTestOutbox(t, conn, wsFraming, testLimits)
		a, b := liveSub(o, "0x1"), liveSub(o, "0x2")
		require.NoError(t, a.notify(textEvent(3, "a"), true))
		synctest.Wait()
		require.NoError(t, b.notify(textEvent(0, "b"), true))
		conn.fail(errors.New("reset"))
		<-o.done
		synctest.Wait()
		synctest.Wait()
		require.Equal(t, []dropReport{{Reason: dropWrite}}, dropsOf(o))
		require.True(t, conn.aborted)
		require.ErrorIs(t, b.notify(textEvent(0, "b"), true), errSubscriptionOver)
		requireEmpty(t, o)
	})
}

// TestGuardIdleOutboxHoldsNothing: no goroutine, no queue memory.
func TestGuardIdleOutboxHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := newFakeConn()
		conn.letAll()
		o := newTestOutbox(t, conn, wsFraming, testLimits)
		s := liveSub(o, "0x1")
		for range 100 {
			require.NoError(t, s.notify(textEvent(0, "a"), false))
		}
		synctest.Wait()
		require.Zero(t, cap(o.queue.items))
		require.False(t, o.writing)
	})
}

// TestGuardFifoMoves keeps a queue that never empties from growing.
func TestGuardFifoMoves(t *testing.T) {
	var q fifo[outboxItem]
	for i := range 10 {
		q.push(outboxItem{msg: textReply(i)})
	}
	for i := range 10000 {
		q.push(outboxItem{msg: textReply(i + 10)})
		require.Equal(t, fmt.Sprint(i), string(q.pop().msg.ID))
	}
	require.Less(t, cap(q.items), 200)
}
