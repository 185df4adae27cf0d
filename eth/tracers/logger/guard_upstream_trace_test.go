// SPDX-License-Identifier: LGPL-3.0-or-later

package logger

import (
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/tracing"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/core/vm"
	"github.com/ethereum/go-ethereum/core/vm/runtime"
)

// How the machine is told of a tracer differs between releases.

// traceGuardSteps runs a program and calls after when a step has been recorded.
func traceGuardSteps(code string, cfg *Config, after func(*GuardLog)) *GuardLog {
	l := NewGuardLog(cfg)
	hooks := l.Hooks()
	onOpcode := hooks.OnOpcode
	hooks.OnOpcode = func(pc uint64, op byte, gas, cost uint64, scope tracing.OpContext, rData []byte, depth int, err error) {
		onOpcode(pc, op, gas, cost, scope, rData, depth, err)
		after(l)
	}
	gas := uint64(30_000)
	to := common.Address{0xcc}
	hooks.OnTxStart(&tracing.VMContext{BlockNumber: big.NewInt(1), StateDB: stateOnly{}}, types.NewTx(&types.LegacyTx{Gas: gas}), common.Address{})
	execute(common.FromHex(code), &runtime.Config{
		Origin: to, GasLimit: gas, EVMConfig: vm.Config{Tracer: &tracing.Hooks{OnOpcode: hooks.OnOpcode, OnExit: hooks.OnExit}},
	})
	hooks.OnTxEnd(&types.Receipt{GasUsed: 21_234}, nil)
	return l
}

// stateOnly is the state as far as the logger asks for it.
type stateOnly struct{ tracing.StateDB }

func (stateOnly) GetRefund() uint64                                { return 0 }
func (stateOnly) GetState(common.Address, common.Hash) common.Hash { return common.Hash{7} }
