// SPDX-License-Identifier: LGPL-3.0-or-later

package tracers

import (
	"encoding/json"
	"errors"
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/tracing"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/eth/tracers/logger"
	"github.com/ethereum/go-ethereum/rpc"
)

// errNoJavaScript refuses what cannot be metered; see --rpc.heavy.jstracers.
var errNoJavaScript = errors.New("JavaScript tracers are not available on this server")

// traceMeter counts what one tracer holds. It belongs to the goroutine that runs
// the transaction; several of them may share the call's meter.
type traceMeter struct {
	call   *rpc.BuildMeter
	stop   func(error) // the tracer's Stop, to spare it further work
	keeps  keeps
	output int64
	memory int64
}

// add counts output bytes of the result and memory bytes held beside it. When the
// call's meter refuses them the tracer stops recording; the machine stops because
// the meter ends the call's context, as if its deadline had passed.
func (m *traceMeter) add(output, memory int64) {
	m.output += output
	m.memory += memory
	err := m.call.Add(output)
	if err == nil {
		err = m.call.Hold(memory)
	}
	if err != nil {
		m.stop(err)
	}
}

// result makes the books say what is held once the tracer is done: its result and
// nothing else. While the result is made, both exist.
func (m *traceMeter) result(get func() (json.RawMessage, error)) (json.RawMessage, error) {
	if err := m.call.Hold(m.output); err != nil {
		return nil, err // with its code and data, not as "execution timeout"
	}
	res, err := get()
	m.call.Hold(-m.output - m.memory)
	if err != nil {
		m.call.Add(-m.output)
		return nil, err
	}
	return res, m.call.Add(int64(len(res)) - m.output)
}

// guardLogger is the default tracer of a call, metered.
type guardLogger struct {
	*logger.GuardLog
	meter *traceMeter
}

func newGuardLogger(call *rpc.BuildMeter, cfg *logger.Config) *guardLogger {
	l := logger.NewGuardLog(cfg)
	return &guardLogger{l, &traceMeter{call: call, stop: l.Stop}}
}

// Hooks returns the logger's hooks. What a step adds is known after it.
func (l *guardLogger) Hooks() *tracing.Hooks {
	var (
		hooks    = l.GuardLog.Hooks()
		onOpcode = hooks.OnOpcode
	)
	hooks.OnOpcode = func(pc uint64, op byte, gas, cost uint64, scope tracing.OpContext, rData []byte, depth int, err error) {
		onOpcode(pc, op, gas, cost, scope, rData, depth, err)
		if n := l.Take(); n > 0 {
			l.meter.add(int64(n), 0)
		}
	}
	return hooks
}

// GetResult returns what the logger's own returns.
func (l *guardLogger) GetResult() (json.RawMessage, error) {
	return l.meter.result(l.GuardLog.GetResult)
}

// newGuardTracer makes a tracer of the directory, metered. The native tracers hold
// what they see on entering and leaving frames, logs, and the slots and accounts that
// a transaction touches for the first time; that is counted here, for all of them
// alike. A fork's own tracer is counted as far as it uses the same hooks.
func newGuardTracer(call *rpc.BuildMeter, name string, cfg json.RawMessage, construct constructor) (*Tracer, error) {
	if !call.JavaScript() && usesJavaScript(name, cfg, 0) {
		return nil, errNoJavaScript
	}
	keeps, err := keepsOf(name, cfg, 0)
	if err != nil {
		return nil, err
	}
	tracer, err := construct(name, cfg)
	if err != nil {
		return nil, err
	}
	endStopped(tracer)
	meter := &traceMeter{call: call, stop: tracer.Stop, keeps: keeps}
	tracer.Hooks = meterHooks(*tracer.Hooks, meter)
	get := tracer.GetResult
	tracer.GetResult = func() (json.RawMessage, error) { return meter.result(get) }
	return tracer, nil
}

// usesJavaScript reports whether a tracer runs JavaScript, or has one inside it
// that does: the configuration of the mux tracer names others.
func usesJavaScript(name string, cfg json.RawMessage, depth int) bool {
	if DefaultDirectory.IsJS(name) {
		return true
	}
	if name != "muxTracer" {
		return false
	}
	var inner map[string]json.RawMessage
	if depth > 8 || json.Unmarshal(cfg, &inner) != nil {
		return depth > 8
	}
	for name, cfg := range inner {
		if usesJavaScript(name, cfg, depth+1) {
			return true
		}
	}
	return false
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
			m.log(log)
			onLog(log)
		}
	}
	if opcode := hooks.OnOpcode; opcode != nil {
		hooks.OnOpcode = func(pc uint64, op byte, gas, cost uint64, scope tracing.OpContext, rData []byte, depth int, err error) {
			m.opcode(op, cost, scope)
			opcode(pc, op, gas, cost, scope, rData, depth, err)
		}
	}
	meterHooksV2(&hooks, m)
	return &hooks
}
