// SPDX-License-Identifier: LGPL-3.0-or-later

package ethapi

import (
	"context"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
)

// What releases make of a simulated block differs; this is the one place that says it.

// processBlock stands in front of upstream's function of that name. A request may fill a
// gap of 256 blocks with two system calls of 30 million gas each: none begins, and none is
// taken for whole, once the time is over or nobody waits.
func (sim *simulator) processBlock(ctx context.Context, block *simBlock, header, parent *types.Header, headers []*types.Header, timeout time.Duration) (*types.Block, []simCallResult, map[common.Hash]common.Address, error) {
	if err := cutShort(ctx, timeout); err != nil {
		return nil, nil, nil, err
	}
	b, calls, senders, err := sim.processBlockUnguarded(ctx, block, header, parent, headers, timeout)
	if err == nil {
		err = cutShort(ctx, timeout)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	return b, calls, senders, nil
}
