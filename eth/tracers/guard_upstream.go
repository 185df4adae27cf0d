// SPDX-License-Identifier: LGPL-3.0-or-later

package tracers

import (
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/tracing"
	"github.com/ethereum/go-ethereum/core/vm"
)

// What upstream's releases spell differently, in one place: a base for older ones
// has its own variant of this file.

// meterHooksV2 does for the hooks that came with v1.17.6 what meterHooks does.
func meterHooksV2(hooks *tracing.Hooks, m *traceMeter) {
	if enter := hooks.OnEnterV2; enter != nil {
		hooks.OnEnterV2 = func(depth int, typ byte, from, to common.Address, input []byte, gas tracing.Gas, value *big.Int) {
			m.enter(depth, input)
			enter(depth, typ, from, to, input, gas, value)
		}
	}
	if exit := hooks.OnExitV2; exit != nil {
		hooks.OnExitV2 = func(depth int, output []byte, gasLeft tracing.Gas, err error, reverted bool) {
			m.exit(depth, output)
			exit(depth, output, gasLeft, err, reverted)
		}
	}
	if opcode := hooks.OnOpcodeV2; opcode != nil {
		hooks.OnOpcodeV2 = func(pc uint64, op byte, gas, cost tracing.Gas, scope tracing.OpContext, rData []byte, depth int, err error) {
			m.opcode(vm.OpCode(op), cost.Execution, scope)
			opcode(pc, op, gas, cost, scope, rData, depth, err)
		}
	}
}
