// SPDX-License-Identifier: LGPL-3.0-or-later

package tracers

import (
	"encoding/json"
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/tracing"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/core/vm"
	"github.com/ethereum/go-ethereum/eth/tracers/logger"
	"github.com/holiman/uint256"
)

// What a tracer is: a set of functions, of which it has those that it needs. Up to v1.13 it
// is an interface, and the machine calls all of its methods; a base for such releases has
// its own variant of this file.

// madeTracer is what the directory makes.
type madeTracer = *Tracer

// opScope is what a tracer sees of the machine at one step.
type opScope = tracing.OpContext

// stackOf returns the machine's stack, its top last.
func stackOf(scope opScope) []uint256.Int { return scope.StackData() }

// newGuardLogger returns the default tracer, counted by m. What a step adds is known
// after it.
func newGuardLogger(m *traceMeter, cfg *logger.Config) madeTracer {
	var (
		l        = logger.NewGuardLog(cfg)
		hooks    = l.Hooks()
		onOpcode = hooks.OnOpcode
	)
	m.stop = l.Stop
	hooks.OnOpcode = func(pc uint64, op byte, gas, cost uint64, scope tracing.OpContext, rData []byte, depth int, err error) {
		onOpcode(pc, op, gas, cost, scope, rData, depth, err)
		if n := l.Take(); n > 0 {
			m.add(int64(n), 0)
		}
	}
	get := func() (json.RawMessage, error) { return m.result(l.GetResult) }
	return &Tracer{Hooks: hooks, GetResult: get, Stop: l.Stop}
}

// meterTracer has m count what a tracer records.
func meterTracer(tracer madeTracer, m *traceMeter) madeTracer {
	endStopped(tracer)
	m.stop = tracer.Stop
	tracer.Hooks = meterHooks(*tracer.Hooks, m)
	get := tracer.GetResult
	tracer.GetResult = func() (json.RawMessage, error) { return m.result(get) }
	return tracer
}

// meterHooks returns hooks that count, around those that the tracer has. It adds
// none where the tracer has none: it would not record anything there.
func meterHooks(hooks tracing.Hooks, m *traceMeter) *tracing.Hooks {
	if enter := hooks.OnEnter; enter != nil {
		hooks.OnEnter = func(depth int, typ byte, from, to common.Address, input []byte, gas uint64, value *big.Int) {
			m.enter(depth, input)
			enter(depth, typ, from, to, input, gas, value)
		}
	}
	if exit := hooks.OnExit; exit != nil {
		hooks.OnExit = func(depth int, output []byte, gasUsed uint64, err error, reverted bool) {
			m.exit(depth, output)
			exit(depth, output, gasUsed, err, reverted)
		}
	}
	if onLog := hooks.OnLog; onLog != nil {
		hooks.OnLog = func(log *types.Log) {
			m.log(len(log.Data), len(log.Topics))
			onLog(log)
		}
	}
	if opcode := hooks.OnOpcode; opcode != nil {
		hooks.OnOpcode = func(pc uint64, op byte, gas, cost uint64, scope tracing.OpContext, rData []byte, depth int, err error) {
			m.opcode(vm.OpCode(op), cost, scope)
			opcode(pc, op, gas, cost, scope, rData, depth, err)
		}
	}
	meterHooksV2(&hooks, m)
	return &hooks
}
