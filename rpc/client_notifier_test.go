// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// The names of these tests are the traps that a bounded queue falls into.

// TestGuardNoSilentGap: the first event that does not fit ends its subscription, whatever
// the reason. What fits again later is not delivered either, so the client has a prefix
// of the events and knows that there is no more.
func TestGuardNoSilentGap(t *testing.T) {
	small, large := textEvent(0, "small"), textEvent(0, strings.Repeat("x", 600_000))
	for reason, refused := range map[dropReason]func(s, other *clientNotifier) *Event{
		dropEvents: func(s, other *clientNotifier) *Event { return small },
		dropBytes:  func(s, other *clientNotifier) *Event { return textEvent(0, strings.Repeat("x", 2<<20)) },
		dropConnBytes: func(s, other *clientNotifier) *Event {
			for other.notify(large, true) == nil && other.out.bytes+large.size < other.out.limits.connBytes {
			}
			return large
		},
		dropTooLarge: func(s, other *clientNotifier) *Event { return textEvent(0, strings.Repeat("x", 4<<20)) },
	} {
		synctest.Test(t, func(t *testing.T) {
			conn := newFakeConn()
			limits := testLimits
			limits.notice, limits.result = true, 3<<20
			if reason == dropConnBytes {
				limits.connBytes = limits.bytes
			}
			o := newTestOutbox(t, conn, wsFraming, limits)
			s, other := liveSub(o, "0x1"), liveSub(o, "0x2")
			require.NoError(t, s.notify(textEvent(0, "begun"), true))
			synctest.Wait()
			want := []string{notification("0x1", "begun")}
			if reason != dropEvents {
				require.NoError(t, s.notify(small, true))
			}
			for reason == dropEvents && s.notify(small, true) == nil {
			}
			if s.isOver() == (reason != dropEvents) {
				t.Fatal("over too early, or not at all")
			}
			if reason != dropEvents {
				require.Error(t, s.notify(refused(s, other), true))
			}
			require.Equal(t, reason, dropsOf(o)[0].Reason)
			conn.letAll()
			synctest.Wait() // there is room again
			require.ErrorIs(t, s.notify(small, true), errSubscriptionOver)
			synctest.Wait()
			var got []string
			for _, msg := range conn.messages(wsFraming) {
				if strings.Contains(msg, `"0x1"`) {
					got = append(got, msg)
				}
			}
			require.Equal(t, want, got[:1])
			require.Len(t, got, 2, "what waited is discarded, and the last message is the reason")
			require.Contains(t, got[1], string(reason))
			other.cancel()
			requireEmpty(t, o)
		})
	}
}

// TestGuardHealthyReaderOfLargeBlockIsNotDropped: one block carries more logs than the
// queue has places; it is one event.
func TestGuardHealthyReaderOfLargeBlockIsNotDropped(t *testing.T) {
	testOutbox(t, func(t *testing.T, conn *fakeConn, o *outbox) {
		s := liveSub(o, "0x1")
		texts := make([]string, 100*testLimits.events)
		for i := range texts {
			texts[i] = "log"
		}
		for range testLimits.events {
			require.NoError(t, s.notify(textEvent(0, texts...), true))
		}
		conn.letAll()
		synctest.Wait()
		require.Len(t, conn.messages(wsFraming), len(texts)*testLimits.events)
		require.Empty(t, dropsOf(o))
	})
}

// TestGuardManyCallsInARow: outside eth/filters nobody knows which calls belong to one
// event, so they are not counted, only their bytes.
func TestGuardManyCallsInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := newFakeConn()
		o := newTestOutbox(t, conn, wsFraming, subLimits{events: 16, bytes: 8 << 20, connBytes: 32 << 20})
		s := liveSub(o, "0x1")
		for i := range 8000 {
			require.NoError(t, s.notify(textEvent(0, fmt.Sprint(i)), false))
		}
		conn.letAll()
		synctest.Wait()
		require.Len(t, conn.messages(wsFraming), 8000)

		conn = newFakeConn()
		o = newTestOutbox(t, conn, wsFraming, testLimits)
		s = liveSub(o, "0x1")
		var err error
		for err == nil {
			err = s.notify(textEvent(0, strings.Repeat("x", 1000)), false)
		}
		require.ErrorIs(t, err, errSubscriptionDropped)
		require.Equal(t, dropBytes, dropsOf(o)[0].Reason)
		require.InDelta(t, testLimits.bytes, dropsOf(o)[0].Queued, 3000)
	})
}

func TestGuardResultTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := testLimits
		limits.result = 100
		conn := newFakeConn()
		conn.letAll()
		o := newTestOutbox(t, conn, wsFraming, limits)
		s := liveSub(o, "0x1")
		require.NoError(t, s.notify(textEvent(0, strings.Repeat("x", 98)), true))
		require.Error(t, s.notify(textEvent(0, strings.Repeat("x", 99)), true))
		require.Equal(t, []dropReport{{Reason: dropTooLarge, Queued: 101, Limit: 100}}, dropsOf(o))
	})
}

// TestGuardNothingBeforeSubscribeReply, and in order after it.
func TestGuardNothingBeforeSubscribeReply(t *testing.T) {
	testOutbox(t, func(t *testing.T, conn *fakeConn, o *outbox) {
		conn.letAll()
		s := heldSub(o, "0x1")
		require.NoError(t, s.notify(textEvent(0, "a"), true))
		require.NoError(t, s.notify(textEvent(0, "b"), true))
		require.NoError(t, o.writeReply(textReply(1), nil))
		s.activate()
		require.NoError(t, s.notify(textEvent(0, "c"), true))
		synctest.Wait()
		require.Equal(t, []string{`{"jsonrpc":"2.0","id":1,"result":true}`,
			notification("0x1", "a"), notification("0x1", "b"), notification("0x1", "c")}, conn.messages(wsFraming))
	})
}

// TestGuardNothingAfterUnsubscribeReply: producers go on until they notice.
func TestGuardNothingAfterUnsubscribeReply(t *testing.T) {
	testOutbox(t, func(t *testing.T, conn *fakeConn, o *outbox) {
		s := liveSub(o, "0x1")
		require.NoError(t, s.notify(textEvent(0, "a"), true))
		synctest.Wait()
		require.NoError(t, s.notify(textEvent(0, "b"), true))
		o.forget("0x1")
		require.ErrorIs(t, s.notify(textEvent(0, "c"), true), errSubscriptionOver)
		conn.letAll()
		require.NoError(t, o.writeReply(textReply(1), nil))
		require.ErrorIs(t, s.notify(textEvent(0, "d"), true), errSubscriptionOver)
		s.activate() // late
		synctest.Wait()
		require.Equal(t, []string{notification("0x1", "a"), `{"jsonrpc":"2.0","id":1,"result":true}`}, conn.messages(wsFraming))
		requireEmpty(t, o)
	})
}

// TestGuardUnsubscribeStopsALargeEvent: the rest of an event that is being sent is not.
func TestGuardUnsubscribeStopsALargeEvent(t *testing.T) {
	testOutbox(t, func(t *testing.T, conn *fakeConn, o *outbox) {
		s := liveSub(o, "0x1")
		texts := make([]string, 2000)
		for i := range texts {
			texts[i] = strings.Repeat("x", 500)
		}
		require.NoError(t, s.notify(textEvent(9, texts...), true))
		synctest.Wait()
		o.forget("0x1")
		conn.letAll()
		require.NoError(t, o.writeReply(textReply(1), nil))
		msgs := conn.messages(wsFraming)
		require.Less(t, len(msgs), 200)
		require.Equal(t, `{"jsonrpc":"2.0","id":1,"result":true}`, msgs[len(msgs)-1])
		require.Zero(t, s.written, "the event was not delivered whole")
	})
}

// TestGuardTeardownDuringUnsubscribe races the two; the subscription ends once.
func TestGuardTeardownDuringUnsubscribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 200 {
			conn := newFakeConn()
			limits := testLimits
			limits.notice = true
			o := newTestOutbox(t, conn, wsFraming, limits)
			s := liveSub(o, "0x1")
			require.NoError(t, s.notify(textEvent(0, "on its way"), true))
			synctest.Wait()
			for range limits.events {
				require.NoError(t, s.notify(textEvent(0, "a"), true))
			}
			var wg sync.WaitGroup
			wg.Go(func() { s.notify(textEvent(0, "a"), true) })
			wg.Go(func() { s.notify(textEvent(0, "a"), true) })
			wg.Go(func() { o.forget("0x1") })
			wg.Go(s.cancel)
			wg.Wait()
			require.LessOrEqual(t, len(dropsOf(o)), 1)
			conn.letAll()
			synctest.Wait()
			requireEmpty(t, o)
		}
	})
}

// TestGuardPullStreamWaits: debug traceChain is slowed down, never dropped, and not
// counted against its neighbours.
func TestGuardPullStreamWaits(t *testing.T) {
	testOutbox(t, func(t *testing.T, conn *fakeConn, o *outbox) {
		require.True(t, o.reserve())
		s := o.newNotifier("debug")
		s.describe("traceChain", true)
		s.bind("0x1")
		sent := make(chan int, 1000)
		go func() {
			for i := range 100 {
				if err := s.notify(textEvent(0, strings.Repeat("x", 100<<10)), false); err != nil {
					break
				}
				sent <- i
			}
			close(sent)
		}()
		s.activate()
		synctest.Wait()
		require.Empty(t, sent)
		require.Zero(t, o.bytes)
		conn.let(40)
		require.Equal(t, 0, <-sent)
		require.Equal(t, 1, <-sent)
		o.forget("0x1") // it stops in time
		conn.letAll()
		for range sent {
		}
		require.Empty(t, dropsOf(o))
		synctest.Wait()
		requireEmpty(t, o)
	})
}

// TestGuardPullStreamBeforeActivation waits there too, and ends with the connection.
func TestGuardPullStreamBeforeActivation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newTestOutbox(t, newFakeConn(), wsFraming, testLimits)
		require.True(t, o.reserve())
		s := o.newNotifier("debug")
		s.describe("traceChain", true)
		over := make(chan error)
		go func() { over <- s.notify(textEvent(0, "a"), false) }()
		o.fail(errOutboxClosed)
		require.ErrorIs(t, <-over, errSubscriptionOver)
		requireEmpty(t, o)
	})
}

// TestGuardDryRunWaitsInstead: counted as a drop, once, and delivered as upstream does.
func TestGuardDryRunWaitsInstead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := testLimits
		limits.dryRun = true
		conn := newFakeConn()
		o := newTestOutbox(t, conn, wsFraming, limits)
		s := heldSub(o, "0x1")
		for range 3 * limits.events {
			require.NoError(t, s.notify(textEvent(0, "a"), true))
		}
		s.activate()
		done := make(chan struct{})
		go func() {
			for range 100 {
				require.NoError(t, s.notify(textEvent(0, "a"), true))
			}
			close(done)
		}()
		synctest.Wait()
		conn.letAll()
		<-done
		synctest.Wait()
		require.Len(t, conn.messages(wsFraming), 100+3*limits.events)
		require.LessOrEqual(t, len(dropsOf(o)), 1)
		o.forget("0x1")
		requireEmpty(t, o)
	})
}

func TestGuardSubscriptionPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := testLimits
		limits.subs = 2
		o := newTestOutbox(t, newFakeConn(), wsFraming, limits)
		a := liveSub(o, "0x1")
		require.True(t, o.reserve())
		require.False(t, o.reserve())
		o.unreserve()
		b := liveSub(o, "0x2")
		require.False(t, o.reserve())
		o.forget("0x1")
		a.cancel()
		require.True(t, o.reserve())
		o.unreserve()
		b.cancel()
		requireEmpty(t, o)
		require.Panics(t, o.unreserve)
	})
}

// TestGuardNothingLeftAfterManyTeardowns: 500 subscriptions come and go in every way,
// and the next one is served.
func TestGuardNothingLeftAfterManyTeardowns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := testLimits
		limits.notice = true
		conn := newFakeConn()
		o := newTestOutbox(t, conn, wsFraming, limits)
		for i := range 500 {
			id := ID(fmt.Sprint(i))
			s := heldSub(o, id)
			if i%2 == 0 {
				s.activate()
			}
			for s.notify(textEvent(0, "a"), true) == nil {
			}
			s.activate()
		}
		require.Len(t, dropsOf(o), 500)
		requireZeroBut(t, o, 500) // notices
		conn.letAll()
		s := liveSub(o, "0xnew")
		require.NoError(t, s.notify(textEvent(0, "served"), true))
		synctest.Wait()
		msgs := conn.messages(wsFraming)
		require.Equal(t, notification("0xnew", "served"), msgs[len(msgs)-1])
		s.cancel()
		requireEmpty(t, o)
	})
}

func requireZeroBut(t *testing.T, o *outbox, notices int) {
	t.Helper()
	n := 0
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queue.each(func(item *outboxItem) {
		if item.notice != nil {
			n++
		} else if !item.empty() {
			t.Errorf("left over: %+v", item)
		}
	})
	require.LessOrEqual(t, n, notices) // some are on their way
	require.Greater(t, n, notices/2)
	require.Zero(t, o.bytes)
}
