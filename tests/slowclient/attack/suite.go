// SPDX-License-Identifier: LGPL-3.0-or-later

package attack

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"rpcguard/tests/slowclient/rig"
)

// Options of a suite's run.
type Options struct {
	Quick       bool
	Retries     int   // how often a case broken by a polite client's latency alone is judged again
	MemoryLimit int64 // ends the node; 0: rig.DefaultMemoryLimit
	Period      int   // seconds a block; 0: 1
	Flags       []string
	Stock       string // stock geth of the same release, for what is compared with it
	IPv6        bool   // serve and attack on ::1
	Progress    func(format string, args ...any)
}

// Suite runs cases against one binary, or one endpoint.
type Suite struct {
	Binary   *rig.Binary
	Endpoint *rig.Node // set instead of Binary
	Opt      Options

	node  *rig.Node
	flags string
	setup *rig.PoliteSetup
	deaf  int // cases in a row for which no node could be had

	// What cases made on this node and others can use again.
	accounts []*rig.Account
	bigBlock struct {
		number string
		size   int
	}
	base    *rig.PoliteReport
	flow    *rig.PoliteReport // under LargeFlow, nobody attacking; all that was measured
	again   bool              // more of flow is to be measured
	noH2    bool
	checked bool
}

// Close ends the node.
func (s *Suite) Close() {
	if s.node != nil {
		s.node.Stop()
		s.node, s.accounts = nil, nil
		s.bigBlock.size = 0
	}
}

// Order sorts cases so that those which need the same node follow each other.
func Order(cs []*Case) []*Case {
	first := make(map[string]int)
	key := func(c *Case) string { return fmt.Sprint(c.Engine, c.Alone, c.Flags) }
	for i, c := range cs {
		if _, ok := first[key(c)]; !ok {
			first[key(c)] = i
		}
	}
	cs = slices.Clone(cs)
	slices.SortStableFunc(cs, func(a, b *Case) int { return first[key(a)] - first[key(b)] })
	return cs
}

func (s *Suite) say(format string, args ...any) {
	if s.Opt.Progress != nil {
		s.Opt.Progress(format, args...)
	}
}

// Version names what is judged.
func (s *Suite) Version() string {
	if s.Binary != nil {
		return s.Binary.Version
	}
	return s.Endpoint.HTTP
}

// Base is the polite client's report of the unloaded binary, nil before a run.
func (s *Suite) Base() *rig.PoliteReport { return s.base }

// missing tells why the case cannot run here, "" if it can.
func (s *Suite) missing(c *Case) string {
	if s.Binary == nil {
		switch {
		case c.Needs&(NeedChain|NeedIPC|NeedAuth|NeedGuard|NeedMetrics|NeedGraphQL) != 0 || len(c.Flags) > 0:
			return "needs a node of its own (--binary)"
		case c.Needs&NeedWS != 0 && s.Endpoint.WS == "":
			return "needs --ws"
		}
		return ""
	}
	if c.Needs&NeedGuard != 0 && !s.Binary.Guarded() {
		return "about rpcguard's own API or limits"
	}
	if c.Needs&NeedMetrics != 0 && !s.Binary.Has("pprof") {
		return "no metrics page"
	}
	if c.Needs&NeedGraphQL != 0 && !s.Binary.Has("graphql") {
		return "no GraphQL"
	}
	if c.Needs&NeedAuth != 0 && (s.Binary.Server() || !s.Binary.Has("authrpc.port")) {
		return "no engine API" // bor's flags of one lead to no port; bsc has none
	}
	return ""
}

// RunCase runs one case and judges it. With an error no node could be had to run it
// against, and the record says so.
func (s *Suite) RunCase(ctx context.Context, c *Case) (*Record, error) {
	var earlier []string
	for attempt := 1; ; attempt++ {
		rec, soft, err := s.once(ctx, c)
		if err != nil && ctx.Err() == nil {
			s.Close()
			// A second node, unless no case before had one either.
			if s.deaf++; attempt == 1 && s.deaf <= 3 {
				s.say("%s: %v; tried again", c.Name, err)
				continue
			}
			return s.noNode(c, err), fmt.Errorf("%s: %w", c.Name, err)
		}
		if err != nil {
			s.Close()
			return s.noNode(c, err), err
		}
		s.deaf = 0
		rec.Attempts, rec.Earlier = attempt, earlier
		if rec.Verdict != Broken || !soft || attempt > s.Opt.Retries || ctx.Err() != nil {
			return rec, nil
		}
		earlier = append(earlier, rec.Reason)
		s.say("%s: %s; judged again", c.Name, rec.Reason)
		s.again = c.Flow
	}
}

// noNode is the record of a case for which no node could be had.
func (s *Suite) noNode(c *Case, err error) *Record {
	first, _, _ := strings.Cut(err.Error(), "\n")
	return &Record{
		Case: c.Name, Number: c.Number, Family: c.Family, Why: c.Why, Binary: s.Version(),
		Verdict: NA, Reason: "no node to judge: " + first,
	}
}

// once runs the case; soft means that nothing but a latency broke it.
func (s *Suite) once(ctx context.Context, c *Case) (rec *Record, soft bool, err error) {
	rec = &Record{Case: c.Name, Number: c.Number, Family: c.Family, Why: c.Why, Binary: s.Version()}
	begun := time.Now()
	defer func() {
		if rec != nil {
			rec.Seconds = time.Since(begun).Seconds()
		}
	}()
	if why := s.missing(c); why != "" {
		rec.Verdict, rec.Reason = NA, why
		return rec, false, nil
	}
	if err := s.prepare(ctx, c); err != nil {
		return nil, false, err
	}
	if c.Needs&NeedH2 != 0 && !s.hasH2(ctx) {
		rec.Verdict, rec.Reason = NA, "no HTTP/2 in clear text"
		return rec, false, nil
	}
	limit := s.caseLimit(c)
	cctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r := &Run{
		Ctx: cctx, Node: s.node, Setup: s.setup, suite: s, flows: c.Flow,
		Period: time.Duration(max(1, s.Opt.Period)) * time.Second, Quick: s.Opt.Quick,
	}
	r.Base = s.baseline(c, 0)
	memory := c.MemoryLimit
	if memory == 0 {
		memory = s.Opt.MemoryLimit
	}
	s.node.FreeMemory()
	r.heap = s.node.Heap()
	r.Watch = rig.NewWatch(s.node, memory)
	if c.Before != nil {
		r.perform(&Case{Run: c.Before})
	}
	if !c.NoPolite {
		p, err := rig.StartPolite(cctx, s.node, s.setup)
		if err != nil {
			r.Watch.Stop()
			return nil, false, err
		}
		r.Polite = p
	}
	// A case that does not end loses its node, and with it every socket it waits on.
	overdue := context.AfterFunc(cctx, func() {
		if ctx.Err() == nil {
			r.Break("not over after %v: the node was ended", limit)
		}
		s.node.Kill()
	})
	if len(r.reasons) == 0 && r.na == "" && !r.performed(c, limit+abandonAfter) {
		return s.abandoned(r, rec), false, nil
	}
	overdue()
	if r.Polite != nil {
		report := r.Polite.Stop(5 * time.Second)
		report.Others = r.Watch.Others()
		rec.Polite = &report
		if c.Flow && s.flow != nil {
			r.Base = s.baseline(c, report.Calls)
			r.Note("polite p99 without the attacker", r.Base.P99.Seconds(), "s")
		}
		r.judgePolite(report)
		for _, judge := range r.reports {
			judge(report)
		}
	}
	r.close()
	if !r.ran && r.na == "" && len(r.reasons) == 0 {
		r.Break("attack did not run: nothing shows that it reached the server")
	}
	hard := len(r.reasons) > r.soft
	rec.CPU = r.Watch.CPU().Seconds()
	r.Watch.Stop()
	rec.RSS = r.Watch.Peak() - r.Watch.Start().RSS
	if k := r.Watch.Killed(); k > 0 {
		r.reasons = append([]string{fmt.Sprintf("ended at %s of memory", FormatBytes(k))}, r.reasons...)
		hard = true
	} else if !s.node.Alive() && r.na == "" && !c.Alone {
		r.reasons = append([]string{fmt.Sprintf("the node ended: %v", s.node.Err())}, r.reasons...)
		hard = true
	}
	rec.Figures, rec.Unseen = r.figures, r.unseen
	switch {
	case r.na != "":
		rec.Verdict, rec.Reason = NA, r.na
	case len(r.reasons) > 0:
		rec.Verdict, rec.Reason = Broken, strings.Join(r.reasons[:min(3, len(r.reasons))], "; ")
	default:
		rec.Verdict = Held
	}
	s.settle(cctx, c, rec)
	return rec, !hard, nil
}

// caseLimit is how long a case may take before its node is ended.
func (s *Suite) caseLimit(c *Case) time.Duration {
	if s.Opt.Quick && !c.Long {
		return time.Minute
	}
	return 4 * time.Minute
}

// abandoned is the record of a case that never ended. Its goroutines are left behind,
// with the node they were about.
func (s *Suite) abandoned(r *Run, rec *Record) *Record {
	r.Watch.Stop()
	s.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	rec.Verdict, rec.Figures = Broken, slices.Clone(r.figures)
	rec.Reason = strings.Join(append([]string{"the case did not end"}, r.reasons...), "; ")
	return rec
}

// baseFlags fix the budgets whose defaults depend on the machine's memory, so that a
// verdict does not. The quick set does not wait 10 s for a body that has stalled.
func baseFlags(quick bool) []string {
	flags := []string{"rpc.body.budget=67108864", "rpc.reply.budget=268435456"}
	if quick {
		flags = append(flags, "rpc.body.idle=4s")
	}
	return flags
}

// mergeFlags joins lists of flags; of one that is given more often the last counts.
func mergeFlags(lists ...[]string) (out []string) {
	at := make(map[string]int)
	for _, f := range slices.Concat(lists...) {
		name, _, _ := strings.Cut(f, "=")
		if i, ok := at[name]; ok {
			out[i] = f
			continue
		}
		at[name] = len(out)
		out = append(out, f)
	}
	return out
}

// prepare has a node up with the case's flags, quiet, and its baseline measured.
func (s *Suite) prepare(ctx context.Context, c *Case) error {
	if s.Endpoint != nil {
		s.node = s.Endpoint
	} else {
		flags := mergeFlags(baseFlags(s.Opt.Quick), s.Opt.Flags, c.Flags)
		key := fmt.Sprint(c.Engine, flags)
		if s.node != nil && (c.Alone || key != s.flags || !s.node.Alive()) {
			s.Close()
		}
		if s.node == nil {
			n, err := rig.StartNode(s.Binary, rig.NodeConfig{Period: max(1, s.Opt.Period), Flags: flags, Engine: c.Engine, IPv6: s.Opt.IPv6})
			if err != nil {
				return err
			}
			s.node, s.flags, s.setup = n, key, nil
		}
		if s.setup == nil && !c.Engine && !c.NoPolite {
			var err error
			if s.setup, err = rig.NewPoliteSetup(ctx, s.node); err != nil {
				return fmt.Errorf("preparing the chain: %w", err)
			}
		}
	}
	if s.base == nil && !c.NoPolite {
		s.say("%s: measuring it unloaded", s.Version())
		report, err := s.measureBase(ctx)
		if err != nil {
			return err
		}
		s.base = report
		s.say("%s unloaded: p50 %s, p99 %s, head gap %s; an idle server beside it p99 %s", s.Version(),
			formatDuration(report.P50), formatDuration(report.P99), formatDuration(report.HeadGap), formatDuration(report.Noise))
	}
	if c.Flow && (s.flow == nil || s.again) && s.base != nil {
		s.again = false
		s.moreFlow(s.measureFlow(ctx))
		s.say("%s while large transactions flow: p50 %s, p99 %s; an idle server beside it p99 %s", s.Version(),
			formatDuration(s.flow.P50), formatDuration(s.flow.P99), formatDuration(s.flow.Noise))
	}
	return nil
}

// settle decides whether the next case may use this node: not after a broken one,
// not when it is still busy or fat from this one.
func (s *Suite) settle(ctx context.Context, c *Case, rec *Record) {
	if s.Endpoint != nil {
		return
	}
	if c.Alone || rec.Verdict == Broken || !s.node.Alive() || rec.RSS > 400<<20 || !s.node.Quiet(ctx, 2*time.Second) {
		s.Close()
	}
}
