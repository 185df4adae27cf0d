// SPDX-License-Identifier: LGPL-3.0-or-later

package attack

import (
	"context"
	"fmt"
	"time"

	"rpcguard/tests/slowclient/rig"
)

// baseline is what the polite client sees without the attack, in so many calls. Heads
// come as they do unloaded: large transactions are no reason for a gap.
//
// While large transactions flow a block is sealed in 40 ms, so that one tick of the
// polite client's twenty a second is late, or is not: a p99 of few calls is decided by
// luck. It is held against the worst that as many calls in a row had without attacker.
func (s *Suite) baseline(c *Case, calls int) (base rig.PoliteReport) {
	if s.base != nil {
		base = *s.base
	}
	if c.Flow && s.flow != nil {
		base.P99 = max(base.P99, s.flow.P99, rig.WorstQuantile(s.flow.Latencies, calls, 0.99))
	}
	return base
}

// moreFlow adds a measurement to what is known of the flow. A case that only latencies
// broke has one made at that time, for the machine may have become slower since.
func (s *Suite) moreFlow(got *rig.PoliteReport) {
	if s.flow != nil {
		got.Latencies = append(s.flow.Latencies, got.Latencies...)
		got.P99 = max(got.P99, s.flow.P99)
	}
	s.flow = got
}

// measureFlow lets a polite client alone with the node while large transactions flow, as
// they do in the cases that say so: from their first burst on, and as long as such a
// case takes. Where that fails, the case is judged by the baseline that has no flow.
func (s *Suite) measureFlow(ctx context.Context) *rig.PoliteReport {
	r := &Run{Ctx: ctx, Node: s.node, Setup: s.setup, Quick: s.Opt.Quick, suite: s, flows: true}
	defer r.close()
	report := *s.base
	r.perform(&Case{Run: func(r *Run) {
		r.Account() // takes some blocks; the flow's, once it is given back
		r.close()
		s.node.Quiet(ctx, 5*time.Second)
		s.node.FreeMemory()
		pctx, cancel := context.WithCancel(ctx)
		r.OnClose(cancel)
		p, err := rig.StartPolite(pctx, s.node, s.setup)
		r.Must(err, "polite client")
		f := r.LargeFlow()
		r.For(r.Seconds(12, 20))
		f.Stop()
		got := p.Stop(5 * time.Second)
		r.Check(got.Failed == 0, "%d calls failed: %s", got.Failed, got.Failure)
		if len(r.reasons) == 0 {
			report = got
		}
	}})
	if len(r.reasons) > 0 {
		s.say("%s while large transactions flow: not measured, %s", s.Version(), r.reasons[0])
	}
	s.node.Quiet(ctx, 5*time.Second)
	return &report
}

// measureBase lets a polite client alone with the node. On a machine that is busy
// with other things the quietest of three measurements counts.
func (s *Suite) measureBase(ctx context.Context) (best *rig.PoliteReport, err error) {
	d := 10 * time.Second
	if s.Opt.Quick {
		d = 3 * time.Second
	}
	s.node.Quiet(ctx, 10*time.Second)
	for range 3 {
		p, err := rig.StartPolite(ctx, s.node, s.setup)
		if err != nil {
			return nil, err
		}
		rig.Sleep(ctx, d)
		report := p.Stop(5 * time.Second)
		if report.Failed > 0 || len(report.Problems) > 0 {
			return nil, fmt.Errorf("unloaded already: %d calls failed (%s), %v", report.Failed, report.Failure, report.Problems)
		}
		if best == nil || report.P99 < best.P99 {
			best = &report
		}
		if best.Noise < 10*time.Millisecond {
			break
		}
	}
	return best, nil
}

func (s *Suite) hasH2(ctx context.Context) bool {
	if !s.checked {
		h, err := rig.DialH2(ctx, s.node.HTTP, rig.Dialer{})
		if s.noH2 = err != nil; err == nil {
			h.Close()
		}
		s.checked = true
	}
	return !s.noH2
}
