// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

// guardGauge is one number that a guard shows, read when somebody looks.
type guardGauge struct {
	name string
	read func() int64
}

// intakeGauges shows the books of request bytes and connections.
func (c *guardCore) intakeGauges() []guardGauge {
	b, t, k := c.body, c.conns, &c.bodyBooks
	return []guardGauge{
		{"rpc/body/inuse", func() int64 { return b.stats().InUse }},
		{"rpc/body/inuse/max", func() int64 { return b.stats().High }},
		{"rpc/body/limit", func() int64 { return b.limit }},
		{"rpc/body/refused", func() int64 { return int64(k.full.Load()) }}, // budget full
		{"rpc/body/displaced", func() int64 { return int64(b.stats().Evicted) }},
		{"rpc/body/toolarge", func() int64 { return int64(k.tooLarge.Load()) }},
		{"rpc/body/idle", func() int64 { return int64(k.idle.Load()) }}, // client stalled
		{"rpc/body/slow", func() int64 { return int64(k.slow.Load()) }}, // client too slow in all
		{"rpc/conn/active", t.active.Load},
		{"rpc/conn/active/max", t.high.Load},
		{"rpc/conn/limit", func() int64 { return int64(t.max) }},
		{"rpc/conn/refused", func() int64 { return int64(t.refused.Load()) }},
		{"rpc/conn/displaced", func() int64 { return int64(t.evicted.Load()) }},
		{"rpc/conn/resets", func() int64 { return int64(c.connResets.Load()) }}, // ended for resetting streams
	}
}
