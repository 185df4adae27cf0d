// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/metrics"
)

// guardGauge is one number that a guard shows, read when somebody looks.
type guardGauge struct {
	name string
	read func() int64
}

// intakeGauges shows the books of request bytes, of what subscriptions keep of them
// and of connections.
func (c *guardCore) intakeGauges() []guardGauge {
	b, t, k, kept := c.body, c.conns, &c.bodyBooks, c.kept
	return []guardGauge{
		{"rpc/body/inuse", func() int64 { return b.stats().InUse }},
		{"rpc/body/inuse/max", func() int64 { return b.stats().High }},
		{"rpc/body/limit", func() int64 { return b.limit }},
		{"rpc/body/refused", func() int64 { return int64(k.full.Load()) }}, // budget full
		{"rpc/body/displaced", func() int64 { return int64(b.stats().Evicted) }},
		{"rpc/body/toolarge", func() int64 { return int64(k.tooLarge.Load()) }},
		{"rpc/body/idle", func() int64 { return int64(k.idle.Load()) }}, // client stalled
		{"rpc/body/slow", func() int64 { return int64(k.slow.Load()) }}, // client too slow in all
		{"rpc/subscription/kept/inuse", func() int64 { return kept.stats().InUse }},
		{"rpc/subscription/kept/inuse/max", func() int64 { return kept.stats().High }},
		{"rpc/subscription/kept/limit", func() int64 { return kept.limit }},
		{"rpc/subscription/kept/refused", func() int64 { return int64(kept.stats().Refused) }},
		{"rpc/subscription/kept/displaced", func() int64 { return int64(kept.stats().Evicted) }},
		{"rpc/conn/active", t.active.Load},
		{"rpc/conn/active/max", t.high.Load},
		{"rpc/conn/limit", func() int64 { return int64(t.max) }},
		{"rpc/conn/refused", func() int64 { return int64(t.refused.Load()) }},
		{"rpc/conn/displaced", func() int64 { return int64(t.evicted.Load()) }},
		{"rpc/conn/resets", func() int64 { return int64(c.connResets.Load()) }}, // ended for resetting streams
	}
}

// publishIntake brings the gauges up to date, since metric objects are off by
// default and the books are not. The guards of one process are added up.
var publishIntake struct {
	once sync.Once
	mu   sync.Mutex
	of   [][]guardGauge
}

// publishIntakeMetrics has the gauges of c shown whenever metrics are on.
func (c *guardCore) publishIntakeMetrics() {
	p := &publishIntake
	p.mu.Lock()
	p.of = append(p.of, c.intakeGauges())
	p.mu.Unlock()
	p.once.Do(func() {
		go func() {
			for range time.Tick(metricsInterval) {
				if metricsEnabled() { // turned on after the node is made
					updateIntakeMetrics(metrics.DefaultRegistry)
				}
			}
		}()
	})
}

func updateIntakeMetrics(r metrics.Registry) {
	p := &publishIntake
	p.mu.Lock()
	defer p.mu.Unlock()
	sums := make(map[string]int64)
	for _, gauges := range p.of {
		for _, g := range gauges {
			sums[g.name] += g.read()
		}
	}
	for name, v := range sums {
		metrics.GetOrRegisterGauge(name, r).Update(v)
	}
}
