// SPDX-License-Identifier: LGPL-3.0-or-later

package tracers

import (
	"context"
	"fmt"
	"sync"

	"github.com/ethereum/go-ethereum/rpc"
)

// Upstream makes the tracer of a transaction from a name, through the directory. A
// metered call asks it for meteredTracer, which makes the tracer that the client wants
// and counts what that one records. The directory's functions are given a name's
// configuration and the *Context of the transaction, of which there is one for each
// trace: it leads from there back to the call.

// meteredTracer is of no use to a client who asks for it: no trace waits for it then.
const meteredTracer = "guardMetered"

// meteredTrace is a trace about to begin.
type meteredTrace struct {
	call   *rpc.BuildMeter
	wanted TraceConfig
}

// meteredTraces holds those whose tracer has not been made yet, by *Context.
var meteredTraces sync.Map

// meterTrace returns the configuration that has a transaction traced for the call that
// ctx belongs to, and a function to call when that is over. What is not metered keeps
// its configuration.
func meterTrace(ctx context.Context, txctx *Context, wanted *TraceConfig) (config *TraceConfig, done func()) {
	call := rpc.BuildMeterFromContext(ctx)
	if call == nil {
		return wanted, func() {}
	}
	t := &meteredTrace{call: call}
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
	v, ok := meteredTraces.LoadAndDelete(txctx)
	if !ok {
		return nil, fmt.Errorf("tracer %q cannot be asked for", meteredTracer)
	}
	t := v.(*meteredTrace)
	if t.wanted.Tracer == nil {
		return newGuardLogger(&traceMeter{call: t.call}, t.wanted.Config), nil
	}
	return newGuardTracer(t.call, *t.wanted.Tracer, t.wanted.TracerConfig, construct)
}
