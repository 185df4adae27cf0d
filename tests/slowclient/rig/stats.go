// SPDX-License-Identifier: LGPL-3.0-or-later

package rig

import (
	"slices"
	"sync"
	"time"
)

// Series collects durations. The zero value is ready; it may be used by many.
type Series struct {
	mu sync.Mutex
	v  []time.Duration
}

// Add records one.
func (s *Series) Add(d time.Duration) {
	s.mu.Lock()
	s.v = append(s.v, d)
	s.mu.Unlock()
}

// Len is how many were recorded.
func (s *Series) Len() int { s.mu.Lock(); defer s.mu.Unlock(); return len(s.v) }

// Quantile returns the smallest recorded value that at least the share q of all
// does not exceed; 0 if there is none.
func (s *Series) Quantile(q float64) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.v) == 0 {
		return 0
	}
	slices.Sort(s.v)
	return sortedQuantile(s.v, q)
}

func sortedQuantile(v []time.Duration, q float64) time.Duration {
	i := int(q*float64(len(v))+0.999999) - 1
	return v[min(max(i, 0), len(v)-1)]
}

// Values returns a copy of what was recorded, in its order as long as no quantile was
// asked for: that sorts.
func (s *Series) Values() []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.v)
}

// WorstQuantile returns the largest quantile q of any n values of v that follow each
// other, of all of v if it is shorter; 0 if there is none.
//
// Two p99 compare only where they are made of equally many values: of 120 it is the
// second largest, of 480 the fifth. Where one in fifty is slow whatever happens, the
// first is a slow one nearly always, the second hardly ever.
func WorstQuantile(v []time.Duration, n int, q float64) (worst time.Duration) {
	if n = min(n, len(v)); n <= 0 {
		return 0
	}
	sorted := make([]time.Duration, n)
	for i := 0; i+n <= len(v); i++ {
		copy(sorted, v[i:i+n])
		slices.Sort(sorted)
		worst = max(worst, sortedQuantile(sorted, q))
	}
	return worst
}

// Max returns the largest.
func (s *Series) Max() time.Duration { return s.Quantile(1) }
