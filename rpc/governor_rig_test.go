// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
	"github.com/stretchr/testify/require"
)

// simGovernor returns a governor on a simulated clock, without randomness: a jittered
// time is in its middle.
func simGovernor(t testing.TB, cfg GovernorConfig) (*Governor, *mclock.Simulated) {
	t.Helper()
	clock := new(mclock.Simulated)
	cfg.Clock = clock
	g, err := newGovernor(cfg, func() float64 { return 0.5 })
	require.NoError(t, err)
	return g, clock
}

// advanceClock moves the clock in steps, so that timers set by timers fire in their time.
func advanceClock(clock *mclock.Simulated, d time.Duration) {
	for ; d > 0; d -= time.Millisecond {
		clock.Run(min(d, time.Millisecond))
	}
}

// enterNow is enter for a call that is expected not to be refused. It returns nil if the
// call was admitted at once.
func enterNow(t testing.TB, g *Governor, class GovernorClass, cost int) *governorWaiter {
	t.Helper()
	w, _, err := g.enter(context.Background(), class, cost)
	require.NoError(t, err)
	return w
}

func outcomeOf(g *Governor, w *governorWaiter) governorOutcome {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w == nil {
		return governorGranted
	}
	return w.outcome
}

func checkGovernorBooks(t testing.TB, g *Governor) {
	t.Helper()
	s := g.Stats()
	for _, c := range []GovernorClassStats{s.Foreground, s.Background} {
		require.Equal(t, c.Arrived, c.Admitted+c.Refused+c.Cancelled+uint64(c.Waiting), "%+v", c)
		require.LessOrEqual(t, c.Waiting, c.MaxPlaces)
	}
}
