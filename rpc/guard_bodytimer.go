// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
)

// bodyTimer watches over all bodies being read with one timer, as most of them are
// complete before a timer of their own would have been set and stopped again.
//
// Each body has a place that says when to look at it, at the latest a second after it
// was looked at last (watchPeriod). The timer is set for the earliest of these; when it
// fires, those that are due are looked at, and it is set again if bodies are left. So
// a body that takes a millisecond costs a place in a list, and 10000 that stall cost
// 10000 looks a second.
//
// Timers being inexact, a bound may be noticed 10 ms late.
type bodyTimer struct {
	clock mclock.Clock

	// transfers are reused by this timer's bodies alone: a timer that has fired looks
	// at watches that may serve another body by then, which is safe as long as the
	// place of that one too is guarded by mu.
	transfers sync.Pool // of *bodyTransfer

	mu     sync.Mutex
	bodies linkedList[*bodyWatch]
	timer  mclock.Timer
	at     mclock.AbsTime // when it fires; 0: it is not set
}

// bodyPlace is a body's place in the list of its timer.
type bodyPlace struct {
	listNode[*bodyWatch]
	due mclock.AbsTime
}

// bodyTimerStep keeps many bodies that are due one after another from being a timer
// each.
const bodyTimerStep = 10 * time.Millisecond

// transfer returns what the reading of one body needs. It must be recycled.
func (t *bodyTimer) transfer() *bodyTransfer {
	if transfer, ok := t.transfers.Get().(*bodyTransfer); ok {
		return transfer
	}
	return new(bodyTransfer)
}

// recycle lets the next body have a transfer. Nobody else may know of it any more but
// the timer, which looks at what it is by then.
func (t *bodyTimer) recycle(transfer *bodyTransfer) {
	transfer.reader = bodyReader{}
	transfer.watch.forget()
	t.transfers.Put(transfer)
}

// watch starts the clock for a body that comes in on conn. The watch's stop must be
// called.
func (t *bodyTimer) watch(w *bodyWatch, ctx context.Context, cfg bodyConfig, conn http.ResponseWriter, dry bool) {
	w.mu.Lock()
	w.shared, w.conn, w.dry = t, conn, dry
	now := w.beginLocked(ctx, t.clock, cfg)
	due := w.nextLocked(now)
	w.mu.Unlock()

	t.mu.Lock()
	defer t.mu.Unlock()
	w.place.of, w.place.due = w, due
	t.bodies.pushFront(&w.place.listNode)
	if t.at == 0 || due < t.at {
		t.setLocked(due, now)
	}
}

// remove takes the body's place away, if it has one.
func (t *bodyTimer) remove(w *bodyWatch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.place.in != nil {
		t.bodies.remove(&w.place.listNode)
	}
}

func (t *bodyTimer) setLocked(at, now mclock.AbsTime) {
	if t.timer != nil {
		t.timer.Stop()
	}
	t.at = at
	t.timer = t.clock.AfterFunc(at.Sub(now), t.fired)
}

// fired is the timer's function.
func (t *bodyTimer) fired() {
	now := t.clock.Now()
	var due []*bodyWatch
	t.mu.Lock()
	for n := t.bodies.first; n != nil; n = n.next {
		if n.of.place.due <= now {
			due = append(due, n.of)
		}
	}
	t.mu.Unlock()
	// A watch that was stopped meanwhile may have been given to another body: then it
	// is that one which is looked at, too early, which does no harm.
	next := make([]mclock.AbsTime, len(due))
	for i, w := range due {
		if next[i] = w.look(now); next[i] == 0 {
			next[i] = now.Add(watchPeriod)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, w := range due {
		if w.place.in != nil {
			w.place.due = next[i]
		}
	}
	t.at = 0
	if t.bodies.n == 0 {
		return
	}
	at := t.bodies.first.of.place.due
	for n := t.bodies.first.next; n != nil; n = n.next {
		at = min(at, n.of.place.due)
	}
	t.setLocked(max(at, now.Add(bodyTimerStep)), now)
}
