// SPDX-License-Identifier: LGPL-3.0-or-later

package ethapi

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What a client put in the place of a system contract ends with its time, within a block
// and between them, and blocks that were cut short are not the answer.
func TestGuardSimulatedBlocksEnd(t *testing.T) {
	simulate := func(gap string) string {
		const loop = `{"code":"0x5b620100005f20505f56"}` // hashes 64 KiB again and again
		return `{"jsonrpc":"2.0","id":1,"method":"eth_simulateV1","params":[{"blockStateCalls":[{"stateOverrides":{` +
			`"0x000f3df6d732807ef1319fb7b8bb8522d0beac02":` + loop + `}}` + gap + `]},"latest"]}`
	}
	plain, took := boundedCalls(t, false, 10_000_000, time.Minute)(simulate(""))
	require.NotContains(t, plain, "error")
	reply, ended := boundedCalls(t, true, 10_000_000, 50*time.Millisecond)(simulate(""))
	if took < 150*time.Millisecond {
		t.Skip("no system contract in a simulated block of this release")
	}
	require.Contains(t, reply, aborted)
	require.Less(t, ended, took/2, "of one block")

	reply, ended = boundedCalls(t, true, 10_000_000, 50*time.Millisecond)(simulate(`,{"blockOverrides":{"number":"0xf0"}}`))
	require.Contains(t, reply, aborted)
	require.Less(t, ended, took/2, "of a gap")
}
