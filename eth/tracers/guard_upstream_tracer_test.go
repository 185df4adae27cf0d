// SPDX-License-Identifier: LGPL-3.0-or-later

package tracers

import (
	"encoding/json"
	"math/big"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/tracing"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/core/vm"
	"github.com/holiman/uint256"
)

// machine calls a metered tracer as the machine does that runs a transaction.
type machine struct{ hooks *tracing.Hooks }

// meteredMachine returns a machine whose tracer does nothing and is counted by m.
func meteredMachine(m *traceMeter) machine {
	return machine{meterHooks(tracing.Hooks{
		OnEnter:  func(int, byte, common.Address, common.Address, []byte, uint64, *big.Int) {},
		OnExit:   func(int, []byte, uint64, error, bool) {},
		OnLog:    func(*types.Log) {},
		OnOpcode: func(uint64, byte, uint64, uint64, tracing.OpContext, []byte, int, error) {},
	}, m)}
}

// loggedMachine returns a machine with the default tracer, and the function that makes its result.
func loggedMachine(m *traceMeter) (machine, func() (json.RawMessage, error)) {
	tracer := newGuardLogger(m, nil)
	tracer.OnTxStart(&tracing.VMContext{BlockNumber: new(big.Int), StateDB: noRefund{}}, types.NewTx(&types.LegacyTx{}), common.Address{})
	return machine{tracer.Hooks}, tracer.GetResult
}

// noRefund is a state as far as the default tracer asks for it.
type noRefund struct{ tracing.StateDB }

func (noRefund) GetRefund() uint64 { return 0 }

func (m machine) enter(depth int, input []byte) {
	m.hooks.OnEnter(depth, byte(vm.CALL), common.Address{}, common.Address{}, input, 0, nil)
}

func (m machine) exit(depth int, output []byte) { m.hooks.OnExit(depth, output, 0, nil, false) }

func (m machine) log(data []byte) { m.hooks.OnLog(&types.Log{Data: data}) }

func (m machine) step(op vm.OpCode, cost uint64, stack ...uint256.Int) {
	m.hooks.OnOpcode(0, byte(op), 0, cost, stackOnly{stack: stack}, nil, 1, nil)
}

// stackOnly is a contract at work as far as its stack.
type stackOnly struct {
	tracing.OpContext
	stack []uint256.Int
}

func (s stackOnly) StackData() []uint256.Int { return s.stack }
func (s stackOnly) MemoryData() []byte       { return nil }
func (s stackOnly) Address() common.Address  { return common.Address{} }
