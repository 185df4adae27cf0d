// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestGuardEventLargerThanByteBound: an event enters an empty queue whatever its size,
// also the one behind it once its writing has begun. What piles up is dropped.
func TestGuardEventLargerThanByteBound(t *testing.T) {
	testOutbox(t, func(t *testing.T, conn *fakeConn, o *outbox) {
		s, other := liveSub(o, "0x1"), liveSub(o, "0x2")
		huge := textEvent(5, strings.Repeat("x", int(testLimits.connBytes)))

		require.NoError(t, s.notify(huge, true))
		synctest.Wait() // begun: it does not wait any more
		require.NoError(t, s.notify(huge, true))
		require.NoError(t, other.notify(textEvent(0, "small"), true), "an empty queue next to it")
		require.ErrorIs(t, s.notify(textEvent(0, "behind it"), true), errSubscriptionDropped)
		require.Equal(t, dropBytes, dropsOf(o)[0].Reason)
		<-o.done
		requireEmpty(t, o)
	})
}

func TestGuardOverflowByEvents(t *testing.T) {
	testOutbox(t, func(t *testing.T, conn *fakeConn, o *outbox) {
		s := liveSub(o, "0x1")
		var n int
		for s.notify(textEvent(0, "a"), true) == nil {
			n++
		}
		// One or a few more than wait: those being written.
		require.GreaterOrEqual(t, n, testLimits.events)
		<-o.done
		require.Equal(t, []dropReport{{Reason: dropEvents, Queued: 8, Limit: 8}}, dropsOf(o))
		require.ErrorIs(t, s.notify(textEvent(0, "a"), true), errSubscriptionOver)
		require.Len(t, dropsOf(o), 1, "dropped twice")
		requireEmpty(t, o)
	})
}

// TestGuardConnectionBound: many subscriptions, none of which reaches its own bound.
func TestGuardConnectionBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := newFakeConn()
		limits := testLimits
		limits.notice = true
		o := newTestOutbox(t, conn, wsFraming, limits)
		blocker := liveSub(o, "0xb")
		require.NoError(t, blocker.notify(textEvent(0, "a"), true))
		synctest.Wait()
		ev := textEvent(0, strings.Repeat("x", 100<<10))
		var subs []*clientNotifier
		for i := range 8 {
			subs = append(subs, liveSub(o, ID(fmt.Sprint(i))))
		}
		for range 4 {
			for _, s := range subs {
				s.notify(ev, true)
			}
		}
		require.Equal(t, dropConnBytes, dropsOf(o)[0].Reason)
		require.LessOrEqual(t, o.bytes, limits.connBytes)
		o.fail(errOutboxClosed)
		requireEmpty(t, o)
	})
}

// TestGuardManyEmptyQueues: an event enters an empty queue, but not any number of them on a
// connection that takes nothing. One that has taken what came before loses none.
func TestGuardManyEmptyQueues(t *testing.T) {
	const subs = 40
	ev := textEvent(0, strings.Repeat("x", 600<<10))
	for _, reads := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			conn := newFakeConn()
			limits := testLimits
			limits.notice, limits.subs = true, subs+1
			o := newTestOutbox(t, conn, wsFraming, limits)
			if reads {
				conn.letAll()
			}
			require.NoError(t, liveSub(o, "0xb").notify(textEvent(0, "a"), true))
			synctest.Wait()
			for i := range subs {
				s := liveSub(o, ID(fmt.Sprint(i)))
				s.notify(ev, true)
				if reads {
					synctest.Wait()
				}
			}
			require.LessOrEqual(t, o.bytes, burstShare*limits.connBytes+2*ev.size)
			if reads {
				require.Empty(t, dropsOf(o))
			} else {
				require.Equal(t, dropConnBytes, dropsOf(o)[0].Reason)
				require.Greater(t, o.bytes, limits.connBytes, "a burst may be more than what waits otherwise")
			}
			o.fail(errOutboxClosed)
			requireEmpty(t, o)
		})
	}
}

// TestGuardOverflowBeforeActivationOnlyMarks: torn down before the handler has taken the
// subscription over, it would be put back and closed twice at disconnect.
func TestGuardOverflowBeforeActivationOnlyMarks(t *testing.T) {
	testOutbox(t, func(t *testing.T, conn *fakeConn, o *outbox) {
		conn.letAll()
		s := heldSub(o, "0x1")
		for range testLimits.events {
			require.NoError(t, s.notify(textEvent(0, "a"), true))
		}
		require.ErrorIs(t, s.notify(textEvent(0, "a"), true), errSubscriptionDropped)
		require.Empty(t, dropsOf(o))
		require.Zero(t, o.bytes, "what was held is kept alive")
		require.Nil(t, s.held)
		require.ErrorIs(t, s.notify(textEvent(0, "a"), true), errSubscriptionDropped)

		s.activate()
		require.Equal(t, []dropReport{{Reason: dropEvents, Queued: 8, Limit: 8}}, dropsOf(o))
		<-o.done
		s.activate()
		require.Len(t, dropsOf(o), 1)
		requireEmpty(t, o)
	})
}

// TestGuardDropWithNotice: in unsubscribe mode the connection stays, what waited for the
// subscription is gone, and the last thing that the client hears of it is why.
func TestGuardDropWithNotice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := newFakeConn()
		limits := testLimits
		limits.notice = true
		o := newTestOutbox(t, conn, wsFraming, limits)
		s, other := liveSub(o, "0x1"), liveSub(o, "0x2")
		require.NoError(t, s.notify(textEvent(16, "first"), true))
		synctest.Wait()
		conn.let(1)
		synctest.Wait()
		require.NoError(t, other.notify(textEvent(0, "of the other"), true))
		synctest.Wait()
		for s.notify(textEvent(17, "lost"), true) == nil {
		}
		require.Equal(t, []dropReport{{Reason: dropEvents, Queued: 8, Limit: 8, LastBlock: 16}}, dropsOf(o))
		require.NoError(t, other.notify(textEvent(0, "goes on"), true))
		conn.letAll()
		synctest.Wait()
		require.Equal(t, []string{
			notification("0x1", "first"), notification("0x2", "of the other"),
			`{"jsonrpc":"2.0","method":"eth_subscription","params":{"subscription":"0x1","error":{"code":-32014,"message":"subscription dropped: slow consumer","data":{"reason":"events","queued":8,"limit":8,"lastBlock":"0x10"}}}}`,
			notification("0x2", "goes on"),
		}, conn.messages(wsFraming))
		require.False(t, conn.aborted)
	})
}

// TestGuardDropDoesNotWaitBehindStuckWriter: tearing down from the producer takes no
// time, although the writer is stuck and will be for good.
func TestGuardDropDoesNotWaitBehindStuckWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := &stubbornConn{fakeConn: newFakeConn()}
		o := newTestOutbox(t, conn, wsFraming, testLimits)
		s := liveSub(o, "0x1")
		start := time.Now()
		for s.notify(textEvent(0, "a"), true) == nil {
		}
		require.Less(t, time.Since(start), time.Second)
		require.Len(t, dropsOf(o), 1)
		conn.letAll()
		<-o.done
	})
}

// stubbornConn ignores deadlines.
type stubbornConn struct{ *fakeConn }

func (c *stubbornConn) hurry(time.Duration) {}
