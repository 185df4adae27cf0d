// SPDX-License-Identifier: LGPL-3.0-or-later

package attack

import (
	"context"
	"encoding/json"
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
	require.False(t, r.judgePolite(p))
	require.Empty(t, r.reasons)

	p.P99 = 30 * time.Millisecond
	require.False(t, r.judgePolite(p), "a latency alone is judged again")
	require.Len(t, r.reasons, 1)
	p.Failed = 1
	require.True(t, r.judgePolite(p))

	// Half of the machine was somebody else's.
	require.Equal(t, 2*27*time.Millisecond, LatencyBound(r.Base, rig.PoliteReport{Others: 0.5}))

	// A slow binary is judged by its own measure.
	r = &Run{Base: rig.PoliteReport{P99: 40 * time.Millisecond}, Period: time.Second}
	require.False(t, r.judgePolite(rig.PoliteReport{Calls: 1, P99: 119 * time.Millisecond}))
	require.Empty(t, r.reasons)
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
