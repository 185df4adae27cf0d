// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"math"
	"slices"
)

// Estimate is a median with an interval that holds the true median with at least 95 %
// probability. With fewer than 6 values there is no such interval: Lo and Hi are then
// the extremes.
type Estimate struct {
	Median float64 `json:"median"`
	Lo     float64 `json:"lo"`
	Hi     float64 `json:"hi"`
	N      int     `json:"n"`
}

// estimate makes no assumption on the distribution: how many of n values lie under the
// median is binomial, so the k smallest and k largest can be left out as long as the
// chance that the median is among them stays under 5 %.
func estimate(values []float64) Estimate {
	v := slices.Clone(values)
	slices.Sort(v)
	n := len(v)
	if n == 0 {
		nan := math.NaN()
		return Estimate{nan, nan, nan, 0}
	}
	k := 0
	for tail := math.Pow(0.5, float64(n)); ; k++ {
		// tail is the chance of at most k values under the median, on one side.
		next := tail + binomial(n, k+1)*math.Pow(0.5, float64(n))
		if 2*tail > 0.05 || k >= (n-1)/2 {
			break
		}
		tail = next
	}
	k = max(k-1, 0)
	return Estimate{median(v), v[k], v[n-1-k], n}
}

func median(sorted []float64) float64 {
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

func binomial(n, k int) float64 {
	r := 1.0
	for i := 1; i <= k; i++ {
		r = r * float64(n-k+i) / float64(i)
	}
	return r
}

// medianOf is the median of values in any order, NaN if there are none.
func medianOf(values []float64) float64 { return estimate(values).Median }
