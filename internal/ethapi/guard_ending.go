// SPDX-License-Identifier: LGPL-3.0-or-later

package ethapi

import (
	"context"
	"fmt"
	"time"

	"github.com/ethereum/go-ethereum/core/vm"
	"github.com/ethereum/go-ethereum/rpc"
)

// A machine runs until its gas is used up, whoever waits for it: upstream ties it to the
// call's context for eth_call and the like (applyMessageWithEVM), and forgets the machines
// of access lists and of the system calls of simulated blocks. Without a guard, and for
// trusted clients, all is as upstream has it.

// endWith has a machine end when ctx does. The function it returns is to be called when
// the machine has done its work.
func endWith(ctx context.Context, evm *vm.EVM) (done func()) {
	if !rpc.EndsWithCall(ctx) {
		return func() {}
	}
	stop := context.AfterFunc(ctx, evm.Cancel)
	return func() { stop() }
}

// cutShort returns an error if ctx has ended: a machine that ended with it says nothing,
// and what it left behind looks like a result. The error is the one of eth_call.
func cutShort(ctx context.Context, timeout time.Duration) error {
	if !rpc.EndsWithCall(ctx) || ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("execution aborted (timeout = %v)", timeout)
}
