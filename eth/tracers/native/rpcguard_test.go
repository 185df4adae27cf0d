// SPDX-License-Identifier: LGPL-3.0-or-later

package native

import (
	"encoding/json"
	"errors"
	"math/big"
	"testing"

	"github.com/ethereum/go-ethereum/eth/tracers"
	"github.com/ethereum/go-ethereum/params"
	"github.com/stretchr/testify/require"
)

// Whatever tracer a client names, it can be stopped: nothing recovers where that is
// done. A stopped one says why.
func TestGuardTracersStop(t *testing.T) {
	const mux = `{"keccak256PreimageTracer":{},"callTracer":{}}`
	for name, cfg := range map[string]string{
		"4byteTracer": "", "callTracer": "", "flatCallTracer": "", "keccak256PreimageTracer": "", "muxTracer": mux,
		"noopTracer": "", "prestateTracer": "",
	} {
		tracer, err := tracers.DefaultDirectory.New(name, &tracers.Context{BlockNumber: new(big.Int)}, json.RawMessage(cfg), params.MainnetChainConfig)
		if name == "keccak256PreimageTracer" && err != nil {
			t.Skip("not on this release:", err)
		}
		require.NoError(t, err, name)
		require.NotNil(t, tracer.Stop, name)
		tracer.Stop(errors.New("enough"))
		if name == "keccak256PreimageTracer" {
			_, err = tracer.GetResult()
			require.EqualError(t, err, "enough")
		}
	}
}
