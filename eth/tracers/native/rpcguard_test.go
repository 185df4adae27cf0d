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
	const later = "keccak256PreimageTracer" // which older releases do not have
	wanted := map[string]string{
		"4byteTracer": "", "callTracer": "", "flatCallTracer": "", "muxTracer": `{"callTracer":{}}`,
		"noopTracer": "", "prestateTracer": "",
	}
	if !tracers.DefaultDirectory.IsJS(later) {
		wanted[later], wanted["muxTracer"] = "", `{"keccak256PreimageTracer":{},"callTracer":{}}`
	}
	for name, cfg := range wanted {
		tracer, err := tracers.DefaultDirectory.New(name, &tracers.Context{BlockNumber: new(big.Int)}, json.RawMessage(cfg), params.MainnetChainConfig)
		require.NoError(t, err, name)
		require.NotNil(t, tracer.Stop, name)
		tracer.Stop(errors.New("enough"))
		if name == later {
			_, err = tracer.GetResult()
			require.EqualError(t, err, "enough")
		}
	}
}
