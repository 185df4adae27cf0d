// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"testing"
	"time"
)

// A call may be admitted by the fast path, and be listed only after somebody has closed
// the path and moved all that was listed. It must find its way into the books by itself:
// otherwise its client would seem to hold one permit less.
func TestGateFastListedAfterClosing(t *testing.T) {
	r := newGateRig(t, gateLimits{1, 4, 1, 1, 1})
	late := &gateCall{gate: r.g, class: classNormal, key: rigKey(0)}
	if !r.g.fast.takeFast() {
		t.Fatal("the path is closed")
	}
	waiter := &gateCall{class: classNormal, key: rigKey(1), bound: r.clock.Now().Add(time.Hour)}
	if waits, why := r.g.arrive(waiter); !waits || r.g.fast.isOpen() {
		t.Fatalf("%v, path open: %v", why, r.g.fast.isOpen())
	}
	r.g.fastList(late)
	if held := r.g.clients[rigKey(0)].held[permitExec]; held != 1 {
		t.Errorf("its client holds %d permits", held)
	}
	if n := len(r.g.calls()); n != 2 {
		t.Errorf("%d calls in the dump", n)
	}
	late.release()
	<-waiter.ready
	waiter.release()
	if s := r.g.snapshot(); s.held != (permitCounts{}) || s.clients != 0 {
		t.Errorf("left %+v", s)
	}
	// The waiter was not counted as arrived, since it did not come by acquire.
	if b := r.g.book(classNormal); b.Arrived != 1 || b.Served != 2 {
		t.Errorf("books: %+v", b)
	}
}

// A call may have taken itself out of the table, but not yet given its permit back, when
// somebody closes the path to wait. Its permit wakes the waiter.
func TestGateFastGivenBackAfterClosing(t *testing.T) {
	r := newGateRig(t, gateLimits{1, 4, 1, 1, 1})
	c := &gateCall{class: classNormal}
	r.g.acquire(context.Background(), c)
	if !c.unlist() {
		t.Fatal("not listed")
	}
	waiter := &gateCall{class: classNormal, bound: r.clock.Now().Add(time.Hour)}
	if waits, why := r.g.arrive(waiter); !waits {
		t.Fatal(why)
	}
	r.g.fastGive()
	select {
	case <-waiter.ready:
	default:
		t.Error("the permit was given back and nobody was woken")
	}
}

// More calls of one place in memory than the table has room for are admitted all the
// same, and so are more than the word can count.
func TestGateFastFull(t *testing.T) {
	const calls = 2*fastSlots + 1<<(64-2*fastBits)
	r := newGateRig(t, gateLimits{calls, 4, 1, 1, 1})
	live := make([]gateCall, 2*fastSlots)
	for i := range live {
		live[i].class = classNormal
		if why := r.g.acquire(context.Background(), &live[i]); why != admitted {
			t.Fatal(why)
		}
	}
	if s := r.g.snapshot(); s.held[permitExec] != len(live) || len(r.g.calls()) != len(live) || !r.g.fast.isOpen() {
		t.Errorf("%+v, %d listed", s, len(r.g.calls()))
	}
	for i := range live {
		live[i].end(outcome(i % 3))
	}
	for range calls - len(live) {
		c := gateCall{class: classNormal}
		r.g.acquire(context.Background(), &c)
		c.release()
	}
	if s := r.g.snapshot(); s.held != (permitCounts{}) || s.highHeld[permitExec] != len(live) {
		t.Errorf("left %+v", s)
	}
	b := r.g.book(classNormal)
	if third := uint64(len(live)) / 3; b.Arrived != calls || b.Failed != third+1 || b.Cancelled != third || b.Served != calls-2*third-1 {
		t.Errorf("books: %+v", b)
	}
}

// Failed and cancelled calls of the fast path are in the books as such at once.
func TestGateFastOutcomes(t *testing.T) {
	r := newGateRig(t, gateLimits{8, 4, 1, 1, 1})
	for o, want := range []bookTotals{{Arrived: 1, Served: 1}, {Arrived: 2, Served: 1, Failed: 1},
		{Arrived: 3, Served: 1, Failed: 1, Cancelled: 1}, {Arrived: 4, Served: 1, Failed: 1, Cancelled: 1}} {
		c := &gateCall{class: classNormal}
		r.g.acquire(context.Background(), c)
		c.end(outcome(o)) // the last is refused, which whoever refuses counts
		b := r.g.book(classNormal)
		if b.Arrived != want.Arrived || b.Served != want.Served || b.Failed != want.Failed || b.Cancelled != want.Cancelled {
			t.Errorf("outcome %d: %+v", o, b)
		}
	}
}
