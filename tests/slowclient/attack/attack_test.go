// SPDX-License-Identifier: LGPL-3.0-or-later

package attack

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rpcguard/tests/slowclient/rig"
)

// Every abuse of the list has a case, and no case lies outside of it.
func TestEveryAbuseHasACase(t *testing.T) {
	have := make(map[int]bool)
	quick := 0
	for _, c := range Cases() {
		require.LessOrEqual(t, c.Number, 50, c.Name)
		have[c.Number] = true
		if c.Quick {
			quick++
		}
	}
	for n := 1; n <= 50; n++ {
		require.True(t, have[n], "abuse %d", n)
	}
	require.Positive(t, quick)
}

func TestSelect(t *testing.T) {
	all, err := Select("", false)
	require.NoError(t, err)
	quick, err := Select("", true)
	require.NoError(t, err)
	require.Less(t, len(quick), len(all))
	one, err := Select("1", false)
	require.NoError(t, err)
	require.Len(t, one, 1, "a number is not a part of a name")
	fam, err := Select(bodies+", 1", false)
	require.NoError(t, err)
	require.Greater(t, len(fam), 5)
	_, err = Select("no-such-case", false)
	require.Error(t, err)
}

func TestVerdicts(t *testing.T) {
	r := &Run{Base: rig.PoliteReport{P99: 2 * time.Millisecond, HeadGap: time.Second}, Period: time.Second}
	// 3 x 2 ms is less than 2 ms + 25 ms; the machine was late by 1 ms twice.
	p := rig.PoliteReport{Calls: 100, P99: 28 * time.Millisecond, Noise: time.Millisecond, Heads: 5, HeadGap: 2500 * time.Millisecond}
	require.Equal(t, 29*time.Millisecond, LatencyBound(r.Base, p))
	r.judgePolite(p)
	require.Empty(t, r.reasons)

	p.P99 = 30 * time.Millisecond
	r.judgePolite(p)
	require.Len(t, r.reasons, 1)
	require.Equal(t, 1, r.soft, "a latency alone is judged again")
	p.Failed = 1
	r.judgePolite(p)
	require.Len(t, r.reasons, 3)
	require.Equal(t, 2, r.soft)

	// Half of the machine was somebody else's.
	require.Equal(t, 2*27*time.Millisecond, LatencyBound(r.Base, rig.PoliteReport{Others: 0.5}))

	// A slow binary is judged by its own measure.
	r = &Run{Base: rig.PoliteReport{P99: 40 * time.Millisecond}, Period: time.Second}
	r.judgePolite(rig.PoliteReport{Calls: 1, P99: 119 * time.Millisecond})
	require.Empty(t, r.reasons)
}

// What the chain carries anyway is not the attacker's doing; a silence of heads is.
func TestBaselineUnderFlow(t *testing.T) {
	s := &Suite{base: &rig.PoliteReport{P99: 4 * time.Millisecond, HeadGap: time.Second}}
	flow := &Case{Flow: true}
	require.Equal(t, *s.base, s.baseline(flow, 100), "not measured")
	s.flow = &rig.PoliteReport{P99: 30 * time.Millisecond, HeadGap: 3 * time.Second}
	require.Equal(t, *s.base, s.baseline(new(Case), 100))
	require.Equal(t, rig.PoliteReport{P99: 30 * time.Millisecond, HeadGap: time.Second}, s.baseline(flow, 100))
	s.flow.P99 = time.Millisecond
	require.Equal(t, *s.base, s.baseline(flow, 100), "luck does not make the bound smaller")

	// Two slow calls of four hundred: of all it is no p99, of a hundred with both it is.
	s.flow.Latencies = slices.Repeat([]time.Duration{time.Millisecond}, 400)
	s.flow.Latencies[200], s.flow.Latencies[250] = 50*time.Millisecond, 40*time.Millisecond
	require.Equal(t, 40*time.Millisecond, s.baseline(flow, 100).P99)
	require.Equal(t, 4*time.Millisecond, s.baseline(flow, 400).P99)
	s.moreFlow(&rig.PoliteReport{P99: 2 * time.Millisecond, Latencies: []time.Duration{60 * time.Millisecond, 60 * time.Millisecond}})
	require.Equal(t, 60*time.Millisecond, s.baseline(flow, 100).P99, "a second measurement adds to the first")
	s.moreFlow(&rig.PoliteReport{})
	require.Equal(t, 60*time.Millisecond, s.baseline(flow, 100).P99)

	r := new(Run)
	r.perform(&Case{Run: func(r *Run) { r.LargeFlow() }})
	require.Contains(t, r.reasons[0], "does not say")
}

// Who waits over a minute for what a case is about has the time also in a quick run.
func TestCaseLimit(t *testing.T) {
	s := &Suite{Opt: Options{Quick: true}}
	require.Equal(t, time.Minute, s.caseLimit(new(Case)))
	require.Equal(t, 4*time.Minute, s.caseLimit(&Case{Long: true}))
	for _, c := range Cases() {
		require.False(t, c.Quick && c.Long, "%s: the quick set has no time for it", c.Name)
	}
}

func TestJudges(t *testing.T) {
	r := new(Run)
	require.True(t, r.AtMost("a", 1, 1, ""))
	require.True(t, r.AtLeast("b", 1, 1, ""))
	require.True(t, r.Exactly("c", 14, 14))
	require.Empty(t, r.reasons)
	require.False(t, r.Exactly("refused", 13, 14))
	require.False(t, r.AtMost("memory", 3<<30, 96<<20, "B"))
	require.Equal(t, []string{"refused 13, not 14", "memory 3.0 GiB, over 96 MiB"}, r.reasons)
	require.Len(t, r.figures, 5)
}

// A case that panics or skips is a verdict, not the end of the suite.
func TestPerformSurvives(t *testing.T) {
	r := new(Run)
	r.perform(&Case{Run: func(r *Run) { panic("oops") }})
	require.Len(t, r.reasons, 1)
	require.Contains(t, r.reasons[0], "oops")
	r = new(Run)
	r.perform(&Case{Run: func(r *Run) { r.Skip("no %s", "reason") }})
	require.Equal(t, "no reason", r.na)
	r = new(Run)
	r.perform(&Case{Run: func(r *Run) { r.Must(context.Canceled, "dialing"); t.Error("went on") }})
	require.Equal(t, []string{"dialing: context canceled"}, r.reasons)
}

// A case is not held because its attack did not get there.
func TestArrived(t *testing.T) {
	r := new(Run)
	r.Arrived("calls", 3, 3)
	require.Empty(t, r.reasons)
	r.Arrived("streams", 2, 3)
	require.Equal(t, []string{"attack did not run: 2 of 3 streams"}, r.reasons)
	require.True(t, r.ran)
}

// Where only the outside of a node is seen, what was not judged is said.
func TestNotSeen(t *testing.T) {
	r := &Run{Node: new(rig.Node), Ctx: context.Background()}
	r.MemoryAtMost(1)
	r.MemorySince(0, 1)
	r.IdleAfterLeaving(1)
	r.Working("calls")
	require.Empty(t, r.reasons)
	require.Empty(t, r.figures)
	require.Equal(t, []string{"memory", "processors"}, r.unseen)
	require.Contains(t, (&Record{Unseen: r.unseen}).Summary(), "not judged: memory, processors")
}

// On a crowded machine a busy node gets little: that is not idleness.
func TestIdleBound(t *testing.T) {
	require.Equal(t, 0.5, idleBound(2))
	require.Equal(t, 0.15, idleBound(0.3))
	require.Equal(t, 0.12, idleBound(0.1))
}

func TestMergeFlags(t *testing.T) {
	require.Equal(t, []string{"a=2", "b", "c=3"}, mergeFlags([]string{"a=1", "b"}, nil, []string{"a=2", "c=3"}))
}

// A case that never ends is left behind.
func TestPerformedEnds(t *testing.T) {
	stuck := make(chan struct{})
	defer close(stuck)
	require.False(t, new(Run).performed(&Case{Run: func(*Run) { <-stuck }}, 10*time.Millisecond))
	require.True(t, new(Run).performed(&Case{Run: func(*Run) {}}, time.Minute))
}

func TestInterval(t *testing.T) {
	mean, half := interval([]float64{1, 2, 3})
	require.InDelta(t, 2, mean, 1e-9)
	require.InDelta(t, 4.30/1.7320508, half, 1e-6)
	mean, half = interval([]float64{5, 5, 5, 5, 5, 5, 5, 5, 5})
	require.InDelta(t, 5, mean, 1e-9)
	require.InDelta(t, 0, half, 1e-9)
}

func TestMissing(t *testing.T) {
	s := &Suite{Endpoint: &rig.Node{HTTP: "x"}}
	require.NotEmpty(t, s.missing(&Case{Needs: NeedChain}))
	require.NotEmpty(t, s.missing(&Case{Needs: NeedWS}))
	require.Empty(t, s.missing(&Case{}))
	s.Endpoint.WS = "y"
	require.Empty(t, s.missing(&Case{Needs: NeedWS}))
	require.NotEmpty(t, s.missing(&Case{Flags: []string{"rpc.body.budget=1"}}))
}

func TestBooks(t *testing.T) {
	require.True(t, Books{30, 0, 16, 14, 0}.Balanced())
	require.False(t, Books{30, 0, 16, 13, 0}.Balanced())
	require.True(t, Books{30, 0, 16, 14, 0}.Sub(Books{10, 0, 6, 4, 0}).Balanced())
}

func TestZerosIsABatchOfZeros(t *testing.T) {
	for _, n := range []int{10, 11, 1000} {
		var v []int
		require.NoError(t, json.Unmarshal(zeros(n), &v))
		require.InDelta(t, n/2, len(v), 3)
	}
}
