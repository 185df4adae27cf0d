// SPDX-License-Identifier: LGPL-3.0-or-later

package tracers

import (
	"context"
	"encoding/json"

	"github.com/ethereum/go-ethereum/rpc"
)

// chainBackend carries the context of the call that traces a chain to the workers that
// do it after the call has returned. They run under no context of their own.
type chainBackend struct {
	Backend
	ctx context.Context
	end func() // of what is held for the chain
}

// TraceChain returns a subscription to the traces of all blocks between two.
func (api *API) TraceChain(ctx context.Context, start, end rpc.BlockNumber, config *TraceConfig) (*rpc.Subscription, error) {
	rest, done, err := rpc.ContinueCall(ctx)
	if err != nil {
		return nil, err
	}
	guarded := &API{backend: chainBackend{api.backend, rest, done}}
	sub, err := guarded.traceChainSubscription(ctx, start, end, config)
	if err != nil {
		done()
	}
	return sub, err
}

// keepTraces hands on the traces of a chain. The call's permit is kept until the chain is
// traced, and what the traces hold is counted until they are delivered: whoever takes the
// next one is done with the one before.
func (api *API) keepTraces(results chan *blockTraceResult) chan *blockTraceResult {
	backend, ok := api.backend.(chainBackend)
	if !ok {
		return results
	}
	meter := rpc.BuildMeterFromContext(backend.ctx)
	kept := make(chan *blockTraceResult)
	go func() {
		defer backend.end()
		defer close(kept)
		var before int64
		for result := range results {
			kept <- result
			meter.GiveBack(before)
			before = tracesSize(result.Traces)
		}
	}()
	return kept
}

// tracesSize returns the bytes that traces are counted as once they are made.
func tracesSize(traces []*txTraceResult) (n int64) {
	for _, t := range traces {
		if t == nil {
			continue
		}
		if raw, ok := t.Result.(json.RawMessage); ok {
			n += int64(len(raw))
		}
	}
	return n
}

// beginTx returns what a transaction is to be traced with, and a function to call when
// that is over: one transaction is traced at a time for each call, whatever the number of
// workers, and for no longer than the guard allows whatever its client asked for. What its
// tracer records is counted.
func (api *API) beginTx(ctx context.Context, txctx *Context, config *TraceConfig) (context.Context, *TraceConfig, func(), error) {
	scope := ctx
	if backend, ok := api.backend.(chainBackend); ok {
		scope = backend.ctx
	}
	ctx, done, err := rpc.BeginTrace(ctx, scope)
	if err != nil {
		return nil, nil, nil, err
	}
	config, traced := meterTrace(ctx, txctx, config)
	return ctx, config, func() { traced(); done() }, nil
}
