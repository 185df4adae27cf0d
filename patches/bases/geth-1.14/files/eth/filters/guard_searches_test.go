// SPDX-License-Identifier: LGPL-3.0-or-later

package filters

import (
	"context"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/rpc"
)

// TestGuardLogQueriesAreMetered: a query that finds more than one reply may have ends
// with the meter's error; one that finds less is served.
func TestGuardLogQueriesAreMetered(t *testing.T) {
	const blocks = 40
	backend, _ := newTestFilterSystem(t, loggingChain(t, blocks), Config{})
	for last, code := range map[int64]int{10: 0, blocks: -32003} {
		found, err := searched(t, func(ctx context.Context) ([]*types.Log, error) {
			sys := NewFilterSystem(backend, Config{}) // no cache of the query before
			crit := FilterCriteria{FromBlock: big.NewInt(1), ToBlock: big.NewInt(last), Addresses: []common.Address{logger}}
			return newPlainAPI(sys).GetLogs(ctx, crit)
		})
		if code == 0 {
			require.NoError(t, err)
			require.Equal(t, 10, found)
			continue
		}
		var e rpc.Error
		require.ErrorAs(t, err, &e, "%d logs of 64 KiB were found", blocks)
		require.Equal(t, code, e.ErrorCode())
	}
}
