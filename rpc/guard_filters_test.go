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
	alive, forgotten []ID
}

func (f *someFilters) Limit(ID, any, FilterLimits) {}
func (f *someFilters) Uninstall(ID)                {}
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
