// SPDX-License-Identifier: LGPL-3.0-or-later

package tracers

import (
	"context"

	"github.com/ethereum/go-ethereum/core"
	"github.com/ethereum/go-ethereum/core/state"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/core/vm"
)

// What releases and forks give to a trace differs; this is the one place that says it.

// traceChain stands in front of upstream's function of that name.
func (api *API) traceChain(start, end *types.Block, config *TraceConfig, closed <-chan any) chan *blockTraceResult {
	return api.keepTraces(api.traceChainUnguarded(start, end, config, closed))
}

// traceTx stands in front of upstream's function of that name.
func (api *API) traceTx(ctx context.Context, message *core.Message, txctx *Context, vmctx vm.BlockContext, statedb *state.StateDB, config *TraceConfig) (any, error) {
	ctx, config, done, err := api.beginTx(ctx, txctx, config)
	if err != nil {
		return nil, err
	}
	defer done()
	return api.traceTxUnguarded(ctx, message, txctx, vmctx, statedb, config)
}
