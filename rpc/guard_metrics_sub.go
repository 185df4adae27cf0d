// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"sync/atomic"

	"github.com/ethereum/go-ethereum/metrics"
)

// Metrics of subscriptions and polling filters. They are per process, the books
// behind them per node.
var (
	subActiveGauge    = metrics.NewRegisteredGauge("rpc/subscription/active", nil)
	subActiveMaxGauge = metrics.NewRegisteredGauge("rpc/subscription/active/max", nil)
	subQueuedGauge    = metrics.NewRegisteredGauge("rpc/subscription/queued", nil) // bytes
	subQueuedMaxGauge = metrics.NewRegisteredGauge("rpc/subscription/queued/max", nil)
	subRefusedGauge   = metrics.NewRegisteredGauge("rpc/subscription/refused", nil)
	subDroppedGauge   = metrics.NewRegisteredGauge("rpc/subscription/dropped", nil)
	subReasonGauges   = func() map[dropReason]metricGauge {
		gauges := make(map[dropReason]metricGauge)
		for _, reason := range dropReasons {
			gauges[reason] = metrics.NewRegisteredGauge("rpc/subscription/dropped/"+string(reason), nil)
		}
		return gauges
	}()
)

// subBooks counts the subscriptions of a node, of all its connections together. The
// zero value is ready for use; nil counts nothing. All of it is atomic additions.
type subBooks struct {
	active  peakGauge
	queued  peakGauge // bytes
	refused atomic.Int64
	dropped atomic.Int64
}

// count moves the gauges by the given numbers.
func (b *subBooks) count(active, queued int64) {
	if b == nil {
		return
	}
	if active != 0 {
		b.active.add(active)
		subActiveGauge.Inc(active)
		subActiveMaxGauge.UpdateIfGt(b.active.peak.Load())
	}
	if queued != 0 {
		b.queued.add(queued)
		subQueuedGauge.Inc(queued)
		subQueuedMaxGauge.UpdateIfGt(b.queued.peak.Load())
	}
}

func (b *subBooks) countRefusal() {
	b.refused.Add(1)
	subRefusedGauge.Inc(1)
}

func (b *subBooks) countDrop(reason dropReason) {
	b.dropped.Add(1)
	subDroppedGauge.Inc(1)
	subReasonGauges[reason].Inc(1)
}

// peakGauge is a gauge that remembers its highest value.
type peakGauge struct{ now, peak atomic.Int64 }

func (g *peakGauge) add(n int64) {
	now := g.now.Add(n)
	for {
		peak := g.peak.Load()
		if now <= peak || g.peak.CompareAndSwap(peak, now) {
			return
		}
	}
}
