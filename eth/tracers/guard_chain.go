// SPDX-License-Identifier: LGPL-3.0-or-later

package tracers

import (
	"context"

	"github.com/ethereum/go-ethereum/core"
	"github.com/ethereum/go-ethereum/core/state"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/core/vm"
	"github.com/ethereum/go-ethereum/rpc"
)

// chainBackend carries the context of the call that traces a chain to the workers that
// do it after the call has returned. They run under no context of their own.
type chainBackend struct {
	Backend
	ctx context.Context
}

// TraceChain returns a subscription to the traces of all blocks between two.
func (api *API) TraceChain(ctx context.Context, start, end rpc.BlockNumber, config *TraceConfig) (*rpc.Subscription, error) {
	guarded := &API{backend: chainBackend{api.backend, ctx}}
	return guarded.traceChainSubscription(ctx, start, end, config)
}

// traceChain stands in front of upstream's function of that name. The call's permit is
// kept until the chain is traced.
func (api *API) traceChain(start, end *types.Block, config *TraceConfig, closed <-chan error) chan *blockTraceResult {
	results := api.traceChainUnguarded(start, end, config, closed)
	backend, ok := api.backend.(chainBackend)
	if !ok {
		return results
	}
	release := rpc.HoldPermit(backend.ctx)
	kept := make(chan *blockTraceResult)
	go func() {
		defer release()
		defer close(kept)
		for result := range results {
			kept <- result
		}
	}()
	return kept
}

// traceTx stands in front of upstream's function of that name: one transaction is
// traced at a time for each call, whatever the number of workers, and for no longer than
// the guard allows whatever its client asked for. What its tracer records is counted.
func (api *API) traceTx(ctx context.Context, tx *types.Transaction, message *core.Message, txctx *Context, vmctx vm.BlockContext, statedb *state.StateDB, config *TraceConfig, precompiles vm.PrecompiledContracts) (interface{}, error) {
	scope := ctx
	if backend, ok := api.backend.(chainBackend); ok {
		scope = backend.ctx
	}
	ctx, done, err := rpc.BeginTrace(ctx, scope)
	if err != nil {
		return nil, err
	}
	defer done()
	config, traced := meterTrace(ctx, txctx, config)
	defer traced()
	return api.traceTxUnguarded(ctx, tx, message, txctx, vmctx, statedb, config, precompiles)
}
