// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

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
	testOutbox(t, func(t *testing.T, conn *fakeConn, o *outbox) {
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
	testOutbox(t, func(t *testing.T, conn *fakeConn, o *outbox) {
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
	testOutbox(t, func(t *testing.T, conn *fakeConn, o *outbox) {
		conn.letAll()
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
	testOutbox(t, func(t *testing.T, conn *fakeConn, o *outbox) {
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
	testOutbox(t, func(t *testing.T, conn *fakeConn, o *outbox) {
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
	testOutbox(t, func(t *testing.T, conn *fakeConn, o *outbox) {
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
	testOutbox(t, func(t *testing.T, conn *fakeConn, o *outbox) {
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
	testOutbox(t, func(t *testing.T, conn *fakeConn, o *outbox) {
		conn.letAll()
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
