// SPDX-License-Identifier: LGPL-3.0-or-later

package logger

import (
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/vm"
	"github.com/ethereum/go-ethereum/core/vm/runtime"
)

// How the machine is told of a tracer differs between releases.

// steppedLog calls after when a step has been recorded.
type steppedLog struct {
	*GuardLog
	after func(*GuardLog)
}

func (l *steppedLog) CaptureState(pc uint64, op vm.OpCode, gas, cost uint64, scope *vm.ScopeContext, rData []byte, depth int, err error) {
	l.GuardLog.CaptureState(pc, op, gas, cost, scope, rData, depth, err)
	l.after(l.GuardLog)
}

// traceGuardSteps runs a program and calls after when a step has been recorded.
func traceGuardSteps(code string, cfg *Config, after func(*GuardLog)) *GuardLog {
	l := NewGuardLog(cfg)
	const gas = 30_000
	l.CaptureTxStart(gas)
	execute(common.FromHex(code), &runtime.Config{
		Origin: common.Address{0xcc}, GasLimit: gas, EVMConfig: vm.Config{Tracer: &steppedLog{l, after}},
	})
	l.CaptureTxEnd(gas - 21_234)
	return l
}
