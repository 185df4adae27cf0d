// SPDX-License-Identifier: LGPL-3.0-or-later

package filters

import (
	"context"
	"runtime"

	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/rpc"
)

// Whoever looks for logs in a block loads all that the block has, and only what fits the
// query is counted: 640 queries at once for a topic that one log of 37 MB has were 640 times
// 37 MB, decoded, for answers of nothing. So few blocks are loaded at a time, for all
// queries together; whoever comes next finds the block in upstream's cache.

// blockLoads has room for those that load a block. More than one a processor gain nothing
// but memory.
var blockLoads = make(chan struct{}, max(2, runtime.GOMAXPROCS(0)))

// meteredLoad has load look for the logs of a block when it is its turn, and counts those
// that it finds. Without a meter, for trusted servers, it does neither.
func meteredLoad(ctx context.Context, load func() ([]*types.Log, error)) ([]*types.Log, error) {
	meter := rpc.BuildMeterFromContext(ctx)
	if meter == nil {
		return load()
	}
	select {
	case blockLoads <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-blockLoads }()
	logs, err := load()
	if err != nil {
		return logs, err
	}
	if err := meter.Add(logsSize(logs)); err != nil {
		return nil, err
	}
	return logs, nil
}
