// SPDX-License-Identifier: LGPL-3.0-or-later

package tracers

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/holiman/uint256"
	"github.com/stretchr/testify/require"

	"github.com/ethereum/go-ethereum/core/vm"
)

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
		machine := meteredMachine(m)
		for depth := range 2 {
			machine.enter(depth, make([]byte, 1000))
		}
		machine.log(make([]byte, 10))
		machine.step(vm.KECCAK256, 30+6*16, *uint256.NewInt(500), uint256.Int{})
		machine.step(vm.KECCAK256, 30)
		machine.step(vm.SLOAD, 2100, uint256.Int{})
		machine.step(vm.SLOAD, 100, uint256.Int{}) // again
		for depth := range 2 {
			machine.exit(1-depth, make([]byte, 100))
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
