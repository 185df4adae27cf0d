// SPDX-License-Identifier: LGPL-3.0-or-later

package tracers

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"

	"github.com/holiman/uint256"
	"github.com/stretchr/testify/require"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/tracing"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/core/vm"
)

// stackOnly is a machine that shows its stack.
type stackOnly struct {
	tracing.OpContext
	stack []uint256.Int
}

func (s stackOnly) StackData() []uint256.Int { return s.stack }

// A tracer is charged for what it keeps, as often as it keeps it, and for nothing else:
// two calls, one inside the other, with 1000 bytes in and 100 out, a log of 10 bytes, a
// hash of 500 bytes and a slot.
func TestGuardChargesWhatATracerKeeps(t *testing.T) {
	const (
		calls  = 2*2*1000 + 2*2*100 // of output: hexadecimal
		topped = 2*1000 + 2*100
		log    = 2 * 10
		hashed = 2 * 500
	)
	for _, tc := range []struct {
		tracer, config string
		output, memory int64
	}{
		{"noopTracer", "", 0, 0},
		{"4byteTracer", "", 0, 2 * idOverhead},
		{"callTracer", "", calls + log, 2*frameOverhead + logOverhead},
		{"callTracer", `{"onlyTopCall":true}`, topped, frameOverhead},
		{"callTracer", `nonsense`, calls + log, 2*frameOverhead + logOverhead},
		{"flatCallTracer", "", calls + log, 2*frameOverhead + logOverhead},
		{"prestateTracer", "", 0, slotOverhead},
		{"keccak256PreimageTracer", "", hashed, hashOverhead + 500},
		{"muxTracer", `{"noopTracer":null,"callTracer":null,"muxTracer":{"callTracer":{},"prestateTracer":{}}}`,
			2 * (calls + log), 2*(2*frameOverhead+logOverhead) + slotOverhead},
		{"{JavaScript}", "", 0, 0},
	} {
		keeps, err := keepsOf(tc.tracer, json.RawMessage(tc.config), 0)
		require.NoError(t, err)
		m := &traceMeter{keeps: keeps, stop: func(error) { t.Error("stopped") }}
		hooks := meterHooks(tracing.Hooks{
			OnEnter:  func(int, byte, common.Address, common.Address, []byte, uint64, *big.Int) {},
			OnExit:   func(int, []byte, uint64, error, bool) {},
			OnLog:    func(*types.Log) {},
			OnOpcode: func(uint64, byte, uint64, uint64, tracing.OpContext, []byte, int, error) {},
		}, m)
		for depth := range 2 {
			hooks.OnEnter(depth, byte(vm.CALL), common.Address{}, common.Address{}, make([]byte, 1000), 0, nil)
		}
		hooks.OnLog(&types.Log{Data: make([]byte, 10)})
		hooks.OnOpcode(0, byte(vm.KECCAK256), 0, 30+6*16, stackOnly{stack: []uint256.Int{*uint256.NewInt(500), {}}}, nil, 1, nil)
		hooks.OnOpcode(0, byte(vm.KECCAK256), 0, 30, stackOnly{}, nil, 1, nil)
		hooks.OnOpcode(0, byte(vm.SLOAD), 0, 2100, nil, nil, 1, nil)
		hooks.OnOpcode(0, byte(vm.SLOAD), 0, 100, nil, nil, 1, nil) // again
		for depth := range 2 {
			hooks.OnExit(1-depth, make([]byte, 100), 0, nil, false)
		}
		require.Equal(t, tc.output, m.output, "%s %s: output", tc.tracer, tc.config)
		require.Equal(t, tc.memory, m.memory, "%s %s: memory", tc.tracer, tc.config)
	}
}

func TestGuardRefusesDeepMux(t *testing.T) {
	nested := func(n int) json.RawMessage {
		return json.RawMessage(strings.Repeat(`{"muxTracer":`, n) + "{}" + strings.Repeat("}", n))
	}
	_, err := keepsOf("muxTracer", nested(maxMux-1), 0)
	require.NoError(t, err)
	_, err = keepsOf("muxTracer", nested(maxMux), 0)
	require.Equal(t, errMuxTooDeep, err)
}
