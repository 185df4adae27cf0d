// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"
)

// The ranks are those of the tables for the sign test's interval.
func TestEstimateRanks(t *testing.T) {
	for n, want := range map[int][2]float64{1: {1, 1}, 5: {1, 5}, 6: {1, 6}, 7: {1, 7}, 9: {2, 8}, 12: {3, 10}, 15: {4, 12}, 20: {6, 15}} {
		var v []float64
		for i := n; i >= 1; i-- {
			v = append(v, float64(i))
		}
		e := estimate(v)
		require.Equal(t, want, [2]float64{e.Lo, e.Hi}, "n=%d", n)
		require.Equal(t, float64(n+1)/2, e.Median)
	}
}

func TestEstimateCoverage(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	inside := 0
	const tries = 4000
	for range tries {
		v := make([]float64, 9)
		for i := range v {
			v[i] = r.ExpFloat64()
		}
		if e := estimate(v); e.Lo <= 0.693147 && 0.693147 <= e.Hi {
			inside++
		}
	}
	require.Greater(t, float64(inside)/tries, 0.95)
}
