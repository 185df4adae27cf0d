// SPDX-License-Identifier: LGPL-3.0-or-later

package filters

import "testing"

// TestGuardLogQueriesAreMetered: a query that finds more than one reply may have ends
// with the meter's error; one that finds less is served.
func TestGuardLogQueriesAreMetered(t *testing.T) {
	const blocks = 40
	backend, _ := newTestFilterSystem(t, loggingChain(t, blocks), Config{})
	requireMeteredQueries(t, backend, blocks)
}
