// SPDX-License-Identifier: LGPL-3.0-or-later

package tracers

import (
	"encoding/json"
	"math/big"
	"sync/atomic"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/vm"
	"github.com/ethereum/go-ethereum/eth/tracers/logger"
	"github.com/holiman/uint256"
)

// The variant for releases before v1.14: a tracer is an interface, and the machine calls
// all of its methods. It is not told of logs; a tracer sees them as steps.

// madeTracer is what the directory makes.
type madeTracer = Tracer

// opScope is what a tracer sees of the machine at one step.
type opScope = *vm.ScopeContext

// stackOf returns the machine's stack, its top last.
func stackOf(scope opScope) []uint256.Int { return scope.Stack.Data() }

// guardLogger is the default tracer, metered.
type guardLogger struct {
	*logger.GuardLog
	meter *traceMeter
}

// newGuardLogger returns the default tracer, counted by m.
func newGuardLogger(m *traceMeter, cfg *logger.Config) madeTracer {
	l := &guardLogger{logger.NewGuardLog(cfg), m}
	m.stop = l.Stop
	return l
}

// CaptureState counts what a step adds, which is known after it.
func (l *guardLogger) CaptureState(pc uint64, op vm.OpCode, gas, cost uint64, scope *vm.ScopeContext, rData []byte, depth int, err error) {
	l.GuardLog.CaptureState(pc, op, gas, cost, scope, rData, depth, err)
	if n := l.Take(); n > 0 {
		l.meter.add(int64(n), 0)
	}
}

func (l *guardLogger) GetResult() (json.RawMessage, error) {
	return l.meter.result(l.GuardLog.GetResult)
}

// countedTracer is a tracer of the directory, metered. One that was stopped returns why,
// and makes no result that would be thrown away.
type countedTracer struct {
	Tracer
	meter  *traceMeter
	reason atomic.Pointer[error]
}

// meterTracer has m count what a tracer records.
func meterTracer(tracer madeTracer, m *traceMeter) madeTracer {
	t := &countedTracer{Tracer: tracer, meter: m}
	m.stop = t.Stop
	return t
}

func (t *countedTracer) Stop(err error) {
	t.reason.CompareAndSwap(nil, &err)
	t.Tracer.Stop(err)
}

func (t *countedTracer) GetResult() (json.RawMessage, error) {
	return t.meter.result(func() (json.RawMessage, error) {
		if err := t.reason.Load(); err != nil {
			return nil, *err
		}
		return t.Tracer.GetResult()
	})
}

func (t *countedTracer) CaptureStart(env *vm.EVM, from, to common.Address, create bool, input []byte, gas uint64, value *big.Int) {
	t.meter.enter(0, input)
	t.Tracer.CaptureStart(env, from, to, create, input, gas, value)
}

func (t *countedTracer) CaptureEnd(output []byte, gasUsed uint64, err error) {
	t.meter.exit(0, output)
	t.Tracer.CaptureEnd(output, gasUsed, err)
}

// CaptureEnter is told of the frames inside of the outermost one, not how deep they are.
func (t *countedTracer) CaptureEnter(typ vm.OpCode, from, to common.Address, input []byte, gas uint64, value *big.Int) {
	t.meter.enter(1, input)
	t.Tracer.CaptureEnter(typ, from, to, input, gas, value)
}

func (t *countedTracer) CaptureExit(output []byte, gasUsed uint64, err error) {
	t.meter.exit(1, output)
	t.Tracer.CaptureExit(output, gasUsed, err)
}

func (t *countedTracer) CaptureState(pc uint64, op vm.OpCode, gas, cost uint64, scope *vm.ScopeContext, rData []byte, depth int, err error) {
	if err == nil {
		if op >= vm.LOG0 && op <= vm.LOG4 {
			t.meter.logStep(op, cost, scope)
		}
		t.meter.opcode(op, cost, scope)
	}
	t.Tracer.CaptureState(pc, op, gas, cost, scope, rData, depth, err)
}

// logStep counts a log that is about to be made. Its price is 8 a byte, and was paid.
func (m *traceMeter) logStep(op vm.OpCode, cost uint64, scope opScope) {
	stack := stackOf(scope)
	if size := &stack[len(stack)-2]; size.IsUint64() && size.Uint64() < cost {
		m.log(int(size.Uint64()), int(op-vm.LOG0))
	}
}
