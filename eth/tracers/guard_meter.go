// SPDX-License-Identifier: LGPL-3.0-or-later

package tracers

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ethereum/go-ethereum/rpc"
)

// errNoJavaScript refuses what cannot be metered; see --rpc.heavy.jstracers.
var errNoJavaScript = errors.New("JavaScript tracers are not available on this server")

var errTooDeep = errors.New("the tracer's functions call each other too deep")

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
	res, err := recovered(get)
	m.call.Hold(-m.output - m.memory)
	if err != nil {
		m.call.Add(-m.output)
		return nil, err
	}
	return res, m.call.Add(int64(len(res)) - m.output)
}

// recovered makes an error of a panic. Upstream reads what a JavaScript tracer is made of
// and what it returns without looking whether the code behind it throws, or was
// interrupted; the goroutines that trace a block would take the node down with them.
func recovered[T any](do func() (T, error)) (res T, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("tracer failed: %v", v)
		}
		if fmt.Sprintf("%T", err) == "*goja.StackOverflowError" {
			err = errTooDeep // it has no text of its own
		}
	}()
	return do()
}

// newGuardTracer makes a tracer of the directory, metered. The native tracers hold
// what they see on entering and leaving frames, logs, and the slots and accounts that
// a transaction touches for the first time; that is counted here, for all of them
// alike. A fork's own tracer is counted as far as it uses the same hooks.
func newGuardTracer(call *rpc.BuildMeter, name string, cfg json.RawMessage, construct constructor) (madeTracer, error) {
	if !call.JavaScript() && usesJavaScript(name, cfg, 0) {
		return nil, errNoJavaScript
	}
	keeps, err := keepsOf(name, cfg, 0)
	if err != nil {
		return nil, err
	}
	tracer, err := recovered(func() (madeTracer, error) { return construct(name, cfg) })
	if err != nil {
		return nil, err
	}
	return meterTracer(tracer, &traceMeter{call: call, keeps: keeps}), nil
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
