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

	mu    sync.Mutex
	first *bodyWatch
	timer mclock.Timer
	at    mclock.AbsTime // when it fires; 0: it is not set
}

// bodyPlace is a body's place in the list of its timer.
type bodyPlace struct {
	due        mclock.AbsTime
	prev, next *bodyWatch
	in         bool
}

// bodyTimerStep keeps many bodies that are due one after another from being a timer
// each.
const bodyTimerStep = 10 * time.Millisecond

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
	w.place = bodyPlace{due: due, next: t.first, in: true}
	if t.first != nil {
		t.first.place.prev = w
	}
	t.first = w
	if t.at == 0 || due < t.at {
		t.setLocked(due, now)
	}
}

// remove takes the body's place away.
func (t *bodyTimer) remove(w *bodyWatch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := &w.place
	if !p.in {
		return
	}
	if p.prev != nil {
		p.prev.place.next = p.next
	} else {
		t.first = p.next
	}
	if p.next != nil {
		p.next.place.prev = p.prev
	}
	*p = bodyPlace{}
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
	for w := t.first; w != nil; w = w.place.next {
		if w.place.due <= now {
			due = append(due, w)
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
		if w.place.in {
			w.place.due = next[i]
		}
	}
	t.at = 0
	if t.first == nil {
		return
	}
	at := t.first.place.due
	for w := t.first.place.next; w != nil; w = w.place.next {
		at = min(at, w.place.due)
	}
	t.setLocked(max(at, now.Add(bodyTimerStep)), now)
}
