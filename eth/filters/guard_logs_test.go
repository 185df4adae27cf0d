// SPDX-License-Identifier: LGPL-3.0-or-later

package filters

import (
	"testing"

	"github.com/ethereum/go-ethereum/core/filtermaps"
)

// TestGuardLogQueriesAreMetered: a query that finds more than one reply may have ends
// with the meter's error, whichever way it searches; one that finds less is served.
func TestGuardLogQueriesAreMetered(t *testing.T) {
	const blocks = 40
	for name, unindexed := range map[string]bool{"index": false, "blocks": true} {
		t.Run(name, func(t *testing.T) {
			backend, _ := newTestFilterSystem(loggingChain(t, blocks), Config{})
			backend.startFilterMaps(0, unindexed, filtermaps.DefaultParams)
			defer backend.stopFilterMaps()
			requireMeteredQueries(t, backend, blocks)
		})
	}
}
