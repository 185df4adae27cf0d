// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"slices"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
	"github.com/stretchr/testify/require"
)

// someFilters are the filters of an API that has no more to it.
type someFilters struct {
	alive, forgotten, uninstalled []ID
}

func (f *someFilters) Limit(ID, any, FilterLimits) {}
func (f *someFilters) Uninstall(id ID)             { f.uninstalled = append(f.uninstalled, id) }
func (f *someFilters) Forget(id ID)                { f.forgotten = append(f.forgotten, id) }
func (f *someFilters) Alive(ids []ID) []bool {
	alive := make([]bool, len(ids))
	for i, id := range ids {
		alive[i] = slices.Contains(f.alive, id)
	}
	return alive
}

// TestGuardFiltersLeaveTheBooks: one that is uninstalled leaves with that call, also
// the books of its API; one that expires within a tick, although nobody needs its place.
// Without filters no timer is left.
func TestGuardFiltersLeaveTheBooks(t *testing.T) {
	var (
		clock = new(mclock.Simulated)
		b     = newFilterBook(10, 10, clock)
		f     = &someFilters{alive: []ID{"a", "b", "c"}}
	)
	for _, id := range f.alive {
		require.NoError(t, b.reserve(clientKey{}, true))
		b.enter(id, clientKey{}, f)
	}
	require.Equal(t, 1, clock.ActiveTimers())
	b.leave("a")
	b.leave("a")
	b.leave("never made")
	require.Equal(t, []ID{"a"}, f.forgotten)
	require.Equal(t, 2, b.taken)

	f.alive = []ID{"c"}
	clock.Run(sweepTick - time.Millisecond)
	require.Equal(t, 2, b.taken)
	clock.Run(time.Millisecond)
	require.Equal(t, 1, b.taken)
	require.Equal(t, 1, clock.ActiveTimers())
	f.alive = nil
	clock.Run(sweepTick)
	require.Zero(t, b.taken)
	require.Zero(t, clock.ActiveTimers())

	f.alive = []ID{"d"}
	require.NoError(t, b.reserve(clientKey{}, true))
	b.enter("d", clientKey{}, f)
	require.Equal(t, 1, clock.ActiveTimers())
}

// TestTrapFiltersOfEqualsDisplaceEachOther: a client gets the place of the filter that the
// one with most has not polled for longest, but only while that leaves it with no more
// than the other.
func TestTrapFiltersOfEqualsDisplaceEachOther(t *testing.T) {
	var (
		clock          = new(mclock.Simulated)
		b              = newFilterBook(5, 10, clock)
		f              = new(someFilters)
		greedy, modest = budgetKey(1), budgetKey(2)
	)
	for _, id := range []ID{"a", "b", "c", "d", "e"} {
		require.NoError(t, b.reserve(greedy, true))
		clock.Run(time.Millisecond)
		b.enter(id, greedy, f)
	}
	require.Error(t, b.reserve(greedy, true), "nobody takes from himself")
	for _, id := range []ID{"f", "g"} { // 1 to 4, 2 to 3
		require.NoError(t, b.reserve(modest, true))
		b.enter(id, modest, f)
	}
	require.Equal(t, []ID{"a", "b"}, f.uninstalled)
	require.Error(t, b.reserve(modest, true), "3 to 2 would only turn it round")
	require.Error(t, b.reserve(greedy, true))
	require.Equal(t, []ID{"a", "b"}, f.uninstalled)
}
