// SPDX-License-Identifier: LGPL-3.0-or-later

package attack

import (
	"fmt"
	"time"

	"rpcguard/tests/slowclient/rig"
)

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
