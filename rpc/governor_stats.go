// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"time"

	"github.com/ethereum/go-ethereum/metrics"
)

// GovernorStats is a snapshot of a governor, taken in one step: the identity of
// GovernorClassStats holds in it, for each class, at any moment.
type GovernorStats struct {
	Foreground GovernorClassStats
	Background GovernorClassStats

	Tokens    float64       // in the bucket; negative while a debt is paid off
	Pauses    uint64        // begun so far
	Paused    time.Duration // all pauses together, the rest of the present one included
	PauseLeft time.Duration // until calls are sent again, 0 if not paused
	Retries   uint64        // attempts beyond a call's first, each of them paid
	Fallbacks uint64        // attempts sent to a fall-back endpoint
	Merged    uint64        // reads answered by another read in flight
}

// GovernorClassStats are the books of one class. A call and each of its retries is one
// arrival, as is a batch: Arrived = Admitted + Refused + Cancelled + Waiting.
type GovernorClassStats struct {
	Arrived   uint64
	Admitted  uint64 // sent
	Waited    uint64 // of Admitted, those that did not go out at once
	Refused   uint64 // with a GovernorError
	Displaced uint64 // of Refused, those that had a place
	Cancelled uint64 // the caller left, or its deadline was too near
	Tokens    uint64 // spent, a batch of N being N
	Waiting   int    // now
	MaxPlaces int    // the bound of Waiting
	Peak      int    // the highest Waiting so far
}

// Stats returns the present state.
func (g *Governor) Stats() GovernorStats {
	g.mu.Lock()
	defer g.mu.Unlock()

	s := GovernorStats{
		Foreground: g.classes[Foreground].stats(),
		Background: g.classes[Background].stats(),
		Tokens:     g.bucket.TokensAt(bucketTime(g.timeLocked())),
		Pauses:     g.pause.pauses,
		Paused:     g.pause.paused,
		Retries:    g.retries,
		Fallbacks:  g.others,
		Merged:     g.merged,
	}
	if left := g.pause.until.Sub(g.now); left > 0 {
		s.PauseLeft = left
	}
	return s
}

func (q *governorQueue) stats() GovernorClassStats {
	return GovernorClassStats{
		Arrived:   q.arrived,
		Admitted:  q.admitted,
		Waited:    q.waited,
		Refused:   q.refused,
		Displaced: q.displaced,
		Cancelled: q.cancelled,
		Tokens:    q.tokens,
		Waiting:   q.len(),
		MaxPlaces: q.places,
		Peak:      int(q.peak),
	}
}

// retried counts an attempt beyond a call's first.
func (g *Governor) retried(fallback bool) {
	g.mu.Lock()
	g.retries++
	if fallback {
		g.others++
	}
	g.mu.Unlock()

	governorRetries.Inc(1)
	if fallback {
		governorFallbacks.Inc(1)
	}
}

// joined counts a read that was merged into another.
func (g *Governor) joined() {
	g.mu.Lock()
	g.merged++
	g.mu.Unlock()

	governorMerged.Inc(1)
}

// governorClassMetrics are the books of one class over all governors of the process. They
// follow an event by a moment, since no metric is touched under a governor's lock.
type governorClassMetrics struct {
	admitted  metricCounter
	waited    metricCounter
	refused   metricCounter
	cancelled metricCounter
	waiting   metricGauge
}

func newGovernorClassMetrics(class GovernorClass) governorClassMetrics {
	prefix := "rpc/governor/" + class.String() + "/"
	return governorClassMetrics{
		admitted:  metrics.NewRegisteredCounter(prefix+"admitted", nil),
		waited:    metrics.NewRegisteredCounter(prefix+"waited", nil),
		refused:   metrics.NewRegisteredCounter(prefix+"refused", nil),
		cancelled: metrics.NewRegisteredCounter(prefix+"cancelled", nil),
		waiting:   metrics.NewRegisteredGauge(prefix+"waiting", nil),
	}
}

var (
	governorMetrics = [numGovernorClasses]governorClassMetrics{
		Foreground: newGovernorClassMetrics(Foreground),
		Background: newGovernorClassMetrics(Background),
	}
	governorPauses    = metrics.NewRegisteredCounter("rpc/governor/pauses", nil)
	governorPaused    = metrics.NewRegisteredCounter("rpc/governor/paused/ms", nil)
	governorRetries   = metrics.NewRegisteredCounter("rpc/governor/retries", nil)
	governorFallbacks = metrics.NewRegisteredCounter("rpc/governor/fallbacks", nil)
	governorMerged    = metrics.NewRegisteredCounter("rpc/governor/merged", nil)
)
