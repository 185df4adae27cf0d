// SPDX-License-Identifier: LGPL-3.0-or-later

package ethapi

import (
	"context"
	"time"

	"github.com/ethereum/go-ethereum/core/types"
)

// The variant for releases before v1.15: a simulated block has no senders.

// processBlock stands in front of upstream's function of that name: no block begins, and
// none is taken for whole, once the time is over or nobody waits.
func (sim *simulator) processBlock(ctx context.Context, block *simBlock, header, parent *types.Header, headers []*types.Header, timeout time.Duration) (*types.Block, []simCallResult, error) {
	if err := cutShort(ctx, timeout); err != nil {
		return nil, nil, err
	}
	b, calls, err := sim.processBlockUnguarded(ctx, block, header, parent, headers, timeout)
	if err == nil {
		err = cutShort(ctx, timeout)
	}
	if err != nil {
		return nil, nil, err
	}
	return b, calls, nil
}
