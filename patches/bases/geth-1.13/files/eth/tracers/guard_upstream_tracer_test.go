// SPDX-License-Identifier: LGPL-3.0-or-later

package tracers

import (
	"encoding/json"
	"errors"
	"math/big"
	"testing"
	"unsafe"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/vm"
	"github.com/holiman/uint256"
	"github.com/stretchr/testify/require"
)

// idleTracer does nothing with what it is told.
type idleTracer struct{ made, stops int }

func (*idleTracer) CaptureTxStart(uint64) {}
func (*idleTracer) CaptureTxEnd(uint64)   {}
func (*idleTracer) CaptureStart(*vm.EVM, common.Address, common.Address, bool, []byte, uint64, *big.Int) {
}
func (*idleTracer) CaptureEnd([]byte, uint64, error) {}
func (*idleTracer) CaptureEnter(vm.OpCode, common.Address, common.Address, []byte, uint64, *big.Int) {
}
func (*idleTracer) CaptureExit([]byte, uint64, error) {}
func (*idleTracer) CaptureState(uint64, vm.OpCode, uint64, uint64, *vm.ScopeContext, []byte, int, error) {
}
func (*idleTracer) CaptureFault(uint64, vm.OpCode, uint64, uint64, *vm.ScopeContext, int, error) {}

func (t *idleTracer) GetResult() (json.RawMessage, error) { t.made++; return json.RawMessage("1"), nil }
func (t *idleTracer) Stop(error)                          { t.stops++ }

// machine calls a metered tracer as the machine does that runs a transaction.
type machine struct{ tracer Tracer }

// meteredMachine returns a machine whose tracer does nothing and is counted by m.
func meteredMachine(m *traceMeter) machine { return machine{meterTracer(new(idleTracer), m)} }

// loggedMachine returns a machine with the default tracer, and the function that makes its result.
func loggedMachine(m *traceMeter) (machine, func() (json.RawMessage, error)) {
	tracer := newGuardLogger(m, nil)
	tracer.CaptureStart(&vm.EVM{StateDB: noRefund{}}, common.Address{}, common.Address{}, false, nil, 0, nil)
	return machine{tracer}, tracer.GetResult
}

// noRefund is a state as far as the default tracer asks for it.
type noRefund struct{ vm.StateDB }

func (noRefund) GetRefund() uint64 { return 0 }

func (m machine) enter(depth int, input []byte) {
	if depth == 0 {
		m.tracer.CaptureStart(nil, common.Address{}, common.Address{}, false, input, 0, nil)
	} else {
		m.tracer.CaptureEnter(vm.CALL, common.Address{}, common.Address{}, input, 0, nil)
	}
}

func (m machine) exit(depth int, output []byte) {
	if depth == 0 {
		m.tracer.CaptureEnd(output, 0, nil)
	} else {
		m.tracer.CaptureExit(output, 0, nil)
	}
}

func (m machine) log(data []byte) {
	m.step(vm.LOG0, 375+8*uint64(len(data)), *uint256.NewInt(uint64(len(data))), uint256.Int{})
}

func (m machine) step(op vm.OpCode, cost uint64, stack ...uint256.Int) {
	scope := &vm.ScopeContext{Memory: vm.NewMemory(), Stack: new(vm.Stack)}
	*(*[]uint256.Int)(unsafe.Pointer(scope.Stack)) = stack // its only field; nothing else makes a stack
	m.tracer.CaptureState(0, op, 0, cost, scope, nil, 1, nil)
}

// A step that fails has not been paid for, and may lack what it needs on the stack.
func TestGuardFailedStepIsNotCounted(t *testing.T) {
	m := &traceMeter{keeps: keeps{frames: 1, slots: 1, hashed: 1}}
	tracer := meterTracer(new(idleTracer), m)
	for _, op := range []vm.OpCode{vm.LOG0, vm.LOG4, vm.KECCAK256, vm.SLOAD} {
		tracer.CaptureState(0, op, 0, 1<<20, &vm.ScopeContext{Stack: new(vm.Stack)}, nil, 1, vm.ErrOutOfGas)
	}
	require.Zero(t, m.output+m.memory)
}

// A trace that was stopped makes no result, and the first reason is the one it gives.
func TestGuardStoppedTraceMakesNoResult(t *testing.T) {
	idle := new(idleTracer)
	tracer := meterTracer(idle, new(traceMeter))
	res, err := tracer.GetResult()
	require.NoError(t, err)
	require.Equal(t, "1", string(res))
	first := errors.New("first")
	tracer.Stop(first)
	tracer.Stop(errors.New("second"))
	_, err = tracer.GetResult()
	require.Equal(t, first, err)
	require.Equal(t, idleTracer{made: 1, stops: 2}, *idle)
}
