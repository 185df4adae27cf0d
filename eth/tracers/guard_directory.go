// SPDX-License-Identifier: LGPL-3.0-or-later

package tracers

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/rpc"
)

// Upstream makes the tracer of a transaction from a name, through the directory. A
// metered call asks it for meteredTracer, which makes the tracer that the client wants
// and counts what that one records. The directory's functions are given a name's
// configuration and the *Context of the transaction, of which there is one for each
// trace: it leads from there back to the call.

// meteredTracer is of no use to a client who asks for it: no trace waits for it then.
const meteredTracer = "guardMetered"

// makingTime is how long the tracer of one transaction may take to be made, all that are
// inside of it together: the code of one in JavaScript runs then, and the trace has neither
// a time-out nor a tracer that could be stopped yet.
const makingTime = time.Second

// meteredTrace is a trace that has begun.
type meteredTrace struct {
	call   *rpc.BuildMeter
	ctx    context.Context // the trace's; while its tracer is made, ends after makingTime
	making bool            // its tracer has been asked for
	wanted TraceConfig
}

// meteredTraces holds those that are not over, by *Context.
var meteredTraces sync.Map

// MakingContext returns the context that the tracer of a transaction is made in, or nil
// if making it does not end with that.
func MakingContext(txctx *Context) context.Context {
	if v, ok := meteredTraces.Load(txctx); ok {
		if ctx := v.(*meteredTrace).ctx; rpc.EndsWithCall(ctx) {
			return ctx
		}
	}
	return nil
}

// meterTrace returns the configuration that has a transaction traced for the call that
// ctx belongs to, and a function to call when that is over. What is not metered keeps
// its configuration.
func meterTrace(ctx context.Context, txctx *Context, wanted *TraceConfig) (config *TraceConfig, done func()) {
	call := rpc.BuildMeterFromContext(ctx)
	if call == nil {
		return wanted, func() {}
	}
	t := &meteredTrace{call: call, ctx: ctx}
	if wanted != nil {
		t.wanted = *wanted
	}
	config = new(TraceConfig)
	*config = t.wanted
	name := meteredTracer
	config.Tracer, config.TracerConfig = &name, nil
	meteredTraces.Store(txctx, t)
	return config, func() { meteredTraces.Delete(txctx) }
}

// newMeteredTracer makes the tracer that the client of a transaction's trace wants.
// construct makes one of the directory by its name.
func newMeteredTracer(txctx *Context, construct constructor) (madeTracer, error) {
	v, ok := meteredTraces.Load(txctx)
	if !ok || v.(*meteredTrace).making {
		return nil, fmt.Errorf("tracer %q cannot be asked for", meteredTracer)
	}
	t := v.(*meteredTrace)
	t.making = true
	if t.wanted.Tracer == nil {
		return newGuardLogger(&traceMeter{call: t.call}, t.wanted.Config), nil
	}
	ctx, cancel := context.WithTimeout(t.ctx, makingTime)
	defer cancel()
	t.ctx = ctx
	return newGuardTracer(t.call, *t.wanted.Tracer, t.wanted.TracerConfig, construct)
}
