// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
)

// governorPause is how the budget reacts to an endpoint that says it is overloaded (HTTP
// 429 or 503, or JSON-RPC error -32005 or -32013): nothing of either class is sent until
// the pause is over. Pauses are of the governor, not of an endpoint, since the endpoints
// behind one budget are one service most of the time.
//
// An answer that names a time in Retry-After sets the pause, others double a back-off,
// of which a random part between a half and the whole is waited. One answer that is no
// such refusal ends the doubling.
//
// Calls that were in flight together are refused together, and that is one overload, not
// many. Therefore each call carries the epoch in which it was admitted, every pause
// begins a new one, and only an answer to a call of the current epoch is news. A late
// refusal can still prolong the pause by its Retry-After.
//
// Example: Backoff 250 ms, MaxPause 30 s. 50 calls are refused at once: one pause of 125
// to 250 ms. The first call after it is refused too: 250 to 500 ms. And so on up to 15 to
// 30 s, until a call is answered.
type governorPause struct {
	until   mclock.AbsTime
	epoch   uint64
	backoff time.Duration // of the latest pause, 0 when there is none to double

	pauses uint64
	paused time.Duration // in all, the rest of the present pause included
}

// overloaded enters an answer of overload to a call admitted in the given epoch.
// retryAfter is the time that the answer names, 0 if none.
func (g *Governor) overloaded(epoch uint64, retryAfter time.Duration) {
	jitter := g.random()
	if retryAfter > g.cfg.MaxPause {
		retryAfter = g.cfg.MaxPause
	}
	g.mu.Lock()
	var (
		p    = &g.pause
		now  = g.timeLocked()
		news = epoch == p.epoch
		wait = retryAfter
	)
	if news {
		p.backoff = nextBackoff(p.backoff, g.cfg.Backoff, g.cfg.MaxPause)
		if wait <= 0 {
			wait = p.backoff/2 + time.Duration(jitter*float64(p.backoff/2))
		}
		p.epoch++
		p.pauses++
		g.pausing.Store(true)
	}
	var longer time.Duration
	if until := now.Add(wait); until > p.until {
		longer = until.Sub(now)
		if p.until > now {
			longer = until.Sub(p.until)
		}
		p.until, p.paused = until, p.paused+longer
		if g.waitingLocked() > 0 {
			g.dispatchLocked() // moves the timer
		}
	}
	g.mu.Unlock()

	if news {
		governorPauses.Inc(1)
	}
	governorPaused.Inc(longer.Milliseconds())
}

func nextBackoff(last, first, limit time.Duration) time.Duration {
	switch {
	case last == 0:
		return first
	case last > limit/2:
		return limit
	default:
		return 2 * last
	}
}

// answered enters any other answer. It costs one atomic load unless a back-off is in
// force.
func (g *Governor) answered(epoch uint64) {
	if !g.pausing.Load() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	// An answer to a call sent before the pause says nothing about after it.
	if epoch == g.pause.epoch {
		g.pause.backoff = 0
		g.pausing.Store(false)
	}
}
