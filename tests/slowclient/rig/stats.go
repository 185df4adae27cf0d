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
	i := int(q*float64(len(s.v))+0.999999) - 1
	return s.v[min(max(i, 0), len(s.v)-1)]
}

// Max returns the largest.
func (s *Series) Max() time.Duration { return s.Quantile(1) }
