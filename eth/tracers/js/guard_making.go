// SPDX-License-Identifier: LGPL-3.0-or-later

package js

import (
	"context"
	"errors"

	"github.com/dop251/goja"
	"github.com/ethereum/go-ethereum/eth/tracers"
)

// maxCalls is how deep functions of a tracer may call each other, which is not bounded
// otherwise: they fill the memory, or Go's stack, which ends the node. A function for each
// of 1024 frames of a transaction, called for the one inside of it, fits several times.
const maxCalls = 8192

var errMaking = errors.New("the tracer took too long to be made")

// guardMaking is called before the code of a tracer runs for the first time, as it is made.
// One that belongs to a metered call ends with that, or when its time is over. The function
// it returns is to be called when the tracer is made: from then on its Stop ends it.
func guardMaking(vm *goja.Runtime, txctx *tracers.Context) (made func()) {
	ctx := tracers.MakingContext(txctx)
	if ctx == nil {
		return func() {}
	}
	vm.SetMaxCallStackSize(maxCalls)
	stop := context.AfterFunc(ctx, func() { vm.Interrupt(errMaking) })
	return func() { stop() }
}
