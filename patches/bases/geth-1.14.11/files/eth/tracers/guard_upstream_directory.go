// SPDX-License-Identifier: LGPL-3.0-or-later

package tracers

import "encoding/json"

// The variant for releases before v1.14.12: tracers are made without the chain's
// configuration.

// constructor makes a tracer of the directory for a transaction.
type constructor func(name string, cfg json.RawMessage) (madeTracer, error)

func init() {
	DefaultDirectory.Register(meteredTracer, func(txctx *Context, _ json.RawMessage) (madeTracer, error) {
		return newMeteredTracer(txctx, func(name string, cfg json.RawMessage) (madeTracer, error) {
			return DefaultDirectory.New(name, txctx, cfg)
		})
	}, false)
}

// afterwards has do see what construct makes.
func afterwards(construct ctorFn, do func(madeTracer)) ctorFn {
	return func(txctx *Context, cfg json.RawMessage) (madeTracer, error) {
		t, err := construct(txctx, cfg)
		if err == nil {
			do(t)
		}
		return t, err
	}
}
