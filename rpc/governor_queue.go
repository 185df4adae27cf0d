// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"container/list"
	"math"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
)

// governorOutcome says what became of a waiter.
type governorOutcome uint8

const (
	governorWaiting   governorOutcome = iota
	governorGranted                   // paid in full
	governorLeft                      // the caller went away
	governorExpired                   // its turn came too late for its deadline
	governorDisplaced                 // a foreground call took the place
	governorClosed                    // the governor was closed
)

// governorWaiter is a call that waits for tokens. Its fields are guarded by the
// governor's lock until ready is closed, and do not change after that.
type governorWaiter struct {
	class    GovernorClass
	cost     int            // tokens needed
	paid     int            // collected so far, only by a batch larger than a portion
	lastCall mclock.AbsTime // not worth sending after this, 0 if always

	outcome governorOutcome
	epoch   uint64 // of the pauses, when granted
	ready   chan struct{}
	place   *list.Element
}

// governorQueue is one class: who waits, what it may use, and its books.
type governorQueue struct {
	floor   int // tokens it leaves in the bucket
	portion int // the most it can take at once: what the bucket holds above floor
	places  int // bound of waiting

	waiters list.List // of *governorWaiter, oldest first

	arrived, admitted, waited, tokens   uint64
	refused, displaced, cancelled, peak uint64
}

func (q *governorQueue) init(floor, burst, places int) {
	q.floor, q.portion, q.places = floor, burst-floor, places
	q.waiters.Init()
}

func (q *governorQueue) len() int { return q.waiters.Len() }

func (q *governorQueue) head() *governorWaiter { return waiterAt(q.waiters.Front()) }

func (q *governorQueue) tail() *governorWaiter { return waiterAt(q.waiters.Back()) }

func waiterAt(e *list.Element) *governorWaiter {
	if e == nil {
		return nil
	}
	return e.Value.(*governorWaiter)
}

func (q *governorQueue) push(w *governorWaiter) {
	w.place = q.waiters.PushBack(w)
	if n := uint64(q.len()); n > q.peak {
		q.peak = n
	}
}

// portionOf is what w takes next.
func (q *governorQueue) portionOf(w *governorWaiter) int {
	if n := w.cost - w.paid; n < q.portion {
		return n
	}
	return q.portion
}

// settleLocked takes w out of its queue, enters the outcome into the books and wakes it.
func (g *Governor) settleLocked(w *governorWaiter, outcome governorOutcome) {
	if w.outcome != governorWaiting {
		panic("rpc: governor waiter settled twice")
	}
	q := &g.classes[w.class]
	q.waiters.Remove(w.place)
	switch outcome {
	case governorGranted:
		q.admitted++
		q.waited++
	case governorLeft, governorExpired:
		q.cancelled++
	case governorDisplaced:
		q.refused++
		q.displaced++
	case governorClosed:
		q.refused++
	}
	if w.class == Background && q.len() == 0 {
		g.turn = 0
	}
	w.outcome, w.epoch = outcome, g.pause.epoch
	close(w.ready)
}

func (g *Governor) waitingLocked() int {
	return g.classes[Foreground].len() + g.classes[Background].len()
}

// timeLocked returns the time. A clock that steps back stands still here: the bucket
// would otherwise fill twice for the same time.
func (g *Governor) timeLocked() mclock.AbsTime {
	if now := g.clock.Now(); now > g.now {
		g.now = now
	}
	return g.now
}

// bucketTime is a time in the bucket's terms. It is derived from the monotonic clock
// alone, so that setting the wall clock mints no tokens.
func bucketTime(now mclock.AbsTime) time.Time {
	return time.Unix(0, int64(now))
}

// tokenSlack absorbs the rounding of the bucket's arithmetic, which is done in floats,
// where the reserve is looked at.
const tokenSlack = 1e-6

// trySpendLocked takes n tokens if they are there and floor is left, and keeps the turns.
func (g *Governor) trySpendLocked(class GovernorClass, floor, n int) bool {
	now := bucketTime(g.now)
	if floor > 0 && g.bucket.TokensAt(now) < float64(floor+n)-tokenSlack {
		return false
	}
	if !g.bucket.AllowN(now, n) {
		return false
	}
	g.classes[class].tokens += uint64(n)
	switch {
	case class == Background:
		g.turn = 0
	case g.classes[Background].len() > 0 && g.now >= g.opens:
		if g.turn += n; g.turn < 0 {
			g.turn = math.MaxInt
		}
	}
	return true
}

// turnDueLocked reports whether the foreground has had its twenty tokens for each one
// that w, the oldest background waiter, takes next.
func (g *Governor) turnDueLocked(w *governorWaiter) bool {
	return g.turn/backgroundTurn >= g.classes[Background].portionOf(w)
}

// waitsForLocked returns for how long nothing of the class may be sent. It looks at the
// clock, for all that follows in the same step.
func (g *Governor) waitsForLocked(class GovernorClass) time.Duration {
	at := g.pause.until
	if class == Background && g.opens > at {
		at = g.opens
	}
	return at.Sub(g.timeLocked())
}

// nextLocked returns who is to be admitted next, nil if nobody waits: a background
// waiter whose turn it is, else foreground, else background. Waiters whose deadline
// has come too near are dropped on the way.
func (g *Governor) nextLocked() *governorWaiter {
	fg, bg := g.headLocked(Foreground), g.headLocked(Background)
	if fg == nil || bg != nil && g.turnDueLocked(bg) {
		return bg
	}
	return fg
}

func (g *Governor) headLocked(class GovernorClass) *governorWaiter {
	for {
		w := g.classes[class].head()
		if w == nil || w.lastCall == 0 || w.lastCall > g.timeLocked() {
			return w
		}
		g.settleLocked(w, governorExpired)
	}
}

// dispatchLocked admits whoever can be admitted and arms the timer for the next one.
func (g *Governor) dispatchLocked() {
	for {
		w := g.nextLocked()
		if w == nil {
			g.stopTimerLocked()
			return
		}
		if d := g.waitsForLocked(w.class); d > 0 {
			g.armLocked(d)
			return
		}
		var (
			q     = &g.classes[w.class]
			n     = q.portionOf(w)
			floor = q.floor
		)
		if w.class == Background && g.turnDueLocked(w) {
			floor = 0 // its turn: the reserve is not touched by who has waited for it
		}
		if !g.trySpendLocked(w.class, floor, n) {
			missing := float64(floor+n) - g.bucket.TokensAt(bucketTime(g.now))
			g.armLocked(g.refillTime(missing))
			return
		}
		if w.paid += n; w.paid == w.cost {
			g.settleLocked(w, governorGranted)
		}
	}
}

// refillTime returns how long the bucket takes to gain that many tokens. The result of
// the floating point is rounded
// up, but for less than half a nanosecond: 1000000.0000001 ns must not become 1000001,
// and the bucket forgives what is under a nanosecond.
func (g *Governor) refillTime(tokens float64) time.Duration {
	ns := math.Ceil(tokens/g.cfg.Rate*float64(time.Second) - 0.5)
	return time.Duration(math.Min(ns, math.MaxInt64/2))
}

func (g *Governor) armLocked(d time.Duration) {
	if d < 1 {
		d = 1
	}
	at := g.now.Add(d)
	if g.timer != nil && g.timerAt == at {
		return
	}
	g.stopTimerLocked()
	g.timer, g.timerAt = g.clock.AfterFunc(d, g.wake), at
}

func (g *Governor) stopTimerLocked() {
	if g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
}

// wake is the timer. One that was stopped too late finds nothing to do.
func (g *Governor) wake() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.timer != nil && g.timeLocked() >= g.timerAt {
		g.timer = nil
	}
	g.dispatchLocked()
}
