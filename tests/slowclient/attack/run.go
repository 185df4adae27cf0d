// SPDX-License-Identifier: LGPL-3.0-or-later

package attack

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"rpcguard/tests/slowclient/rig"
)

// Record is the outcome of one case, one JSON object.
type Record struct {
	Case     string            `json:"case"`
	Number   int               `json:"number,omitempty"`
	Family   string            `json:"family"`
	Why      string            `json:"why"`
	Verdict  Verdict           `json:"verdict"`
	Reason   string            `json:"reason,omitempty"` // first bound broken, or why not applicable
	Figures  []Figure          `json:"figures,omitempty"`
	Polite   *rig.PoliteReport `json:"polite,omitempty"`
	RSS      int64             `json:"rss"`               // growth at the peak, bytes
	CPU      float64           `json:"cpu"`               // processor seconds used
	Seconds  float64           `json:"seconds"`           // the case took
	Attempts int               `json:"attempts"`          // above 1: judged again, see Options.Retries
	Binary   string            `json:"binary"`            // version
	Earlier  []string          `json:"earlier,omitempty"` // reasons of the attempts before
	Unseen   []string          `json:"unseen,omitempty"`  // bounds that cannot be judged from where the suite stands
	Round    int               `json:"round,omitempty"`   // of a repeated run, from 1
}

// Key tells records of one run apart.
func (r *Record) Key() string { return fmt.Sprint(r.Binary, " ", r.Case, " ", max(1, r.Round)) }

// Late reports whether the polite client's latency broke the case.
func (r *Record) Late() bool {
	return slices.ContainsFunc(r.Figures, func(f Figure) bool { return f.Name == politeP99 && !f.OK })
}

const politeP99 = "polite p99"

// Judge adds a latency to a record that is complete.
func (r *Record) Judge(name string, value, bound time.Duration) {
	f := Figure{name, value.Seconds(), "s", bound.Seconds(), value <= bound}
	r.Figures = append(r.Figures, f)
	if f.OK {
		return
	}
	reason := fmt.Sprintf("%s %s, over %s", name, formatDuration(value), formatDuration(bound))
	if r.Verdict == Broken {
		reason = r.Reason + "; " + reason
	}
	r.Verdict, r.Reason = Broken, reason
}

// Summary of the record in one line of figures.
func (r *Record) Summary() string {
	var parts []string
	if r.Polite != nil && r.Polite.Calls > 0 {
		parts = append(parts, "p99 "+formatDuration(r.Polite.P99))
		if r.Polite.Heads > 0 {
			parts = append(parts, "gap "+formatDuration(r.Polite.HeadGap))
		}
		if r.Polite.Failed > 0 {
			parts = append(parts, fmt.Sprintf("failed %d", r.Polite.Failed))
		}
	}
	for _, f := range r.Figures {
		if !strings.HasPrefix(f.Name, "polite") {
			parts = append(parts, f.String())
		}
	}
	if r.RSS > 8<<20 {
		parts = append(parts, "+"+FormatBytes(r.RSS))
	}
	if len(r.Unseen) > 0 {
		parts = append(parts, "not judged: "+strings.Join(r.Unseen, ", "))
	}
	return strings.Join(parts, ", ")
}

// Run is what a case works with.
type Run struct {
	Ctx    context.Context
	Node   *rig.Node
	Polite *rig.Polite
	Setup  *rig.PoliteSetup
	Watch  *rig.Watch
	Base   rig.PoliteReport // of the same binary unloaded
	Period time.Duration    // of a block
	Quick  bool

	suite   *Suite
	heap    int64 // allocated before the case
	mu      sync.Mutex
	figures []Figure
	reasons []string
	flows   bool // as its case says
	soft    int  // of the reasons: a latency, which the machine may be guilty of
	ran     bool // something showed that the attack reached the server
	unseen  []string
	na      string
	closers []func()
	reports []func(rig.PoliteReport)
}

// Guarded reports whether the node carries rpcguard.
func (r *Run) Guarded() bool { return r.Node.Binary != nil && r.Node.Binary.Guarded() }

// OnReport has f judge what the polite client saw, once the case is over.
func (r *Run) OnReport(f func(rig.PoliteReport)) {
	r.mu.Lock()
	r.reports = append(r.reports, f)
	r.mu.Unlock()
}

// Arrived says how much of the attack is known to have reached the server. With less
// than want the case is broken whatever else it saw: an attack that did not run proves
// nothing. Every case calls it, or a helper that does.
func (r *Run) Arrived(what string, n, want int) {
	r.mu.Lock()
	r.ran = true
	r.mu.Unlock()
	if n < want {
		r.Break("attack did not run: %d of %d %s", n, want, what)
	}
}

// Working is Arrived for work: it waits until the node's processors show it.
func (r *Run) Working(what string) {
	if r.Node.Pid == 0 {
		r.notSeen("processors")
		r.Arrived(what, 1, 1)
		return
	}
	n := 0
	if r.Node.Busy(r.Ctx, 10*time.Second) {
		n = 1
	}
	r.Arrived(what, n, 1)
}

// WorkingMeanwhile is Working beside what the case does next; the function it returns
// waits for the outcome.
func (r *Run) WorkingMeanwhile(what string) (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Working(what)
	}()
	return func() { <-done }
}

// Goroutines is Arrived for connections and streams: it waits until the server has n
// goroutines more than before. Some may have ended again by then: ask for a part.
func (r *Run) Goroutines(what string, before, n int) {
	if before < 0 {
		r.notSeen("goroutines")
		r.Arrived(what, n, n)
		return
	}
	got := 0
	rig.Until(r.Ctx, 10*time.Second, func() bool {
		if now := r.Node.Goroutines(); now >= 0 {
			got = max(got, now-before)
		}
		return got >= n
	})
	r.Arrived(what, min(got, n), n)
}

// notSeen notes a bound that cannot be judged here: a running node that somebody else
// started is seen from outside only.
func (r *Run) notSeen(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.unseen, what) {
		r.unseen = append(r.unseen, what)
	}
}

// Attacker returns the dialer of the i-th attacking client.
func (r *Run) Attacker(i int) rig.Dialer { return r.Node.Attacker(i) }

// OnClose has f called when the case has ended, last first.
func (r *Run) OnClose(f func()) {
	r.mu.Lock()
	r.closers = append(r.closers, f)
	r.mu.Unlock()
}

// Note records a figure that is not judged.
func (r *Run) Note(name string, value float64, unit string) {
	r.mu.Lock()
	r.figures = append(r.figures, Figure{Name: name, Value: value, Unit: unit, OK: true})
	r.mu.Unlock()
}

// AtMost records a figure that must not exceed bound.
func (r *Run) AtMost(name string, value, bound float64, unit string) bool {
	ok := value <= bound
	r.judge(Figure{name, value, unit, bound, ok}, "over")
	return ok
}

// AtLeast records a figure that must reach bound.
func (r *Run) AtLeast(name string, value, bound float64, unit string) bool {
	ok := value >= bound
	r.judge(Figure{name, value, unit, bound, ok}, "under")
	return ok
}

// Exactly records a count that must be want.
func (r *Run) Exactly(name string, value, want int) bool {
	r.judge(Figure{name, float64(value), "", float64(want), value == want}, "not")
	return value == want
}

func (r *Run) judge(f Figure, word string) {
	r.mu.Lock()
	r.figures = append(r.figures, f)
	r.mu.Unlock()
	if !f.OK {
		r.Break("%s %s, %s %s", f.Name, formatUnit(f.Value, f.Unit), word, formatUnit(f.Bound, f.Unit))
	}
}

// Break says that a bound was not kept. The case goes on.
func (r *Run) Break(format string, args ...any) {
	r.mu.Lock()
	r.reasons = append(r.reasons, fmt.Sprintf(format, args...))
	r.mu.Unlock()
}

// Check breaks the case unless ok.
func (r *Run) Check(ok bool, format string, args ...any) bool {
	if !ok {
		r.Break(format, args...)
	}
	return ok
}

type stopCase struct{}

// Skip ends the case as not applicable.
func (r *Run) Skip(format string, args ...any) {
	r.mu.Lock()
	r.na = fmt.Sprintf(format, args...)
	r.mu.Unlock()
	panic(stopCase{})
}

// Must ends the case as broken when err is not nil: the attack could not be made,
// or the node stopped answering where it has to.
func (r *Run) Must(err error, what string) {
	if err != nil {
		r.Break("%s: %v", what, err)
		panic(stopCase{})
	}
}

// LatencyBound is what a polite call may take: three times as long as without the
// attack, or 25 ms more where that is longer; and twice what an idle server beside it was late
// by meanwhile, which is the machine's doing: a call passes the scheduler more than
// once in a node. Where others used most of the processors, the node had only the
// rest, and everything takes longer in proportion. On a machine of its own both
// allowances are next to nothing.
func LatencyBound(base, now rig.PoliteReport) time.Duration {
	return Allow(max(3*base.P99, base.P99+25*time.Millisecond), now)
}

// Allow adds to a bound what the machine was late by: see LatencyBound.
func Allow(bound time.Duration, now rig.PoliteReport) time.Duration {
	return time.Duration(float64(bound)*crowding(now)) + 2*now.Noise
}

// crowding is by how much others slowed the node down, 1 to 10.
func crowding(p rig.PoliteReport) float64 {
	return min(10, 1/max(0.1, 1-p.Others))
}

// GapBound is the longest silence of newHeads: two block times, and what the
// machine was late by, with half a second for the block builder's own clock.
func (r *Run) GapBound(now rig.PoliteReport) time.Duration {
	slack := time.Duration(float64(500*time.Millisecond) * crowding(now))
	return max(2*r.Period, r.Base.HeadGap+r.Period) + slack + now.Noise
}

// For sleeps while the attack goes on, unless the node ends.
func (r *Run) For(d time.Duration) {
	select {
	case <-time.After(d):
	case <-r.Ctx.Done():
	case <-r.Node.Done():
	}
}

// Scale picks the quick set's or the full set's amount.
func (r *Run) Scale(quick, full int) int {
	if r.Quick {
		return quick
	}
	return full
}

// Seconds is Scale for time.
func (r *Run) Seconds(quick, full int) time.Duration {
	return time.Duration(r.Scale(quick, full)) * time.Second
}

// MemoryAtMost judges how much memory the node holds beyond what it had before.
func (r *Run) MemoryAtMost(bound float64) {
	if r.Node.Pid == 0 {
		r.notSeen("memory")
		return
	}
	r.AtMost("memory", r.Grown(), bound, "B")
}

// MemorySince judges how much more memory the node has held than at an earlier peak.
func (r *Run) MemorySince(peak int64, bound float64) {
	if r.Node.Pid == 0 {
		r.notSeen("memory")
		return
	}
	r.AtMost("memory", float64(r.Watch.Peak()-peak), bound, "B")
}

// Grown is how much memory the node holds beyond what it had before: resident at
// the peak, or still allocated now, whichever is more. Memory that a header made the
// server allocate is not resident until it is written to, but the collector paces
// itself on it.
func (r *Run) Grown() float64 {
	grown := r.Watch.Peak() - r.Watch.Start().RSS
	if r.heap > 0 {
		grown = max(grown, r.Node.Heap()-r.heap)
	}
	return float64(grown)
}

// Parallel runs f(0..n-1) at once and waits for all.
func Parallel(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

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

// abandonAfter is how much longer a case may take whose node was ended; then the suite
// goes on without it.
const abandonAfter = 30 * time.Second

// performed runs the case and reports whether it ended in time.
func (r *Run) performed(c *Case, limit time.Duration) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.perform(c)
	}()
	select {
	case <-done:
		return true
	case <-time.After(limit):
		return false
	}
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

// close undoes what the case opened, last first.
func (r *Run) close() {
	r.mu.Lock()
	closers := r.closers
	r.closers = nil
	r.mu.Unlock()
	for _, f := range slices.Backward(closers) {
		f()
	}
}

func (r *Run) perform(c *Case) {
	defer func() {
		switch v := recover().(type) {
		case nil, stopCase:
		default:
			r.Break("the case itself failed: %v %s", v, firstLines(debug.Stack(), 12))
		}
	}()
	c.Run(r)
}

func firstLines(b []byte, n int) string {
	l := strings.Split(string(b), "\n")
	return strings.Join(l[:min(n, len(l))], " | ")
}

// judgePolite holds the polite client's report against the bounds that every case
// has. Latencies are soft: the machine may be guilty.
func (r *Run) judgePolite(p rig.PoliteReport) {
	if r.na != "" || p.Calls == 0 && p.Failed == 0 {
		return
	}
	r.Soft(politeP99, p.P99, LatencyBound(r.Base, p))
	if p.Failed > 0 {
		r.Break("%d polite calls failed: %s", p.Failed, p.Failure)
	}
	for _, what := range p.Problems {
		r.Break("polite client: %s", what)
	}
	if p.Heads > 0 {
		r.Soft("polite head gap", p.HeadGap, r.GapBound(p))
	}
}

// Soft records a latency that must not exceed bound. A case that only latencies broke
// is judged again.
func (r *Run) Soft(name string, value, bound time.Duration) {
	if !r.AtMost(name, value.Seconds(), bound.Seconds(), "s") {
		r.mu.Lock()
		r.soft++
		r.mu.Unlock()
	}
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
