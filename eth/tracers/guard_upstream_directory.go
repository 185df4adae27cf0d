// SPDX-License-Identifier: LGPL-3.0-or-later

package tracers

import (
	"encoding/json"

	"github.com/ethereum/go-ethereum/params"
)

// What the directory gives to a tracer it makes differs between releases.

// constructor makes a tracer of the directory for a transaction.
type constructor func(name string, cfg json.RawMessage) (madeTracer, error)

func init() {
	DefaultDirectory.Register(meteredTracer, func(txctx *Context, _ json.RawMessage, chainConfig *params.ChainConfig) (madeTracer, error) {
		return newMeteredTracer(txctx, func(name string, cfg json.RawMessage) (madeTracer, error) {
			return DefaultDirectory.New(name, txctx, cfg, chainConfig)
		})
	}, false)
}

// afterwards has do see what construct makes.
func afterwards(construct ctorFn, do func(madeTracer)) ctorFn {
	return func(txctx *Context, cfg json.RawMessage, chainConfig *params.ChainConfig) (madeTracer, error) {
		t, err := construct(txctx, cfg, chainConfig)
		if err == nil {
			do(t)
		}
		return t, err
	}
}
