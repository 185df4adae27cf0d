// SPDX-License-Identifier: LGPL-3.0-or-later

package tracers

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// A trace that was stopped makes no result, and the first reason is the one it gives.
func TestGuardStoppedTraceMakesNoResult(t *testing.T) {
	made, stops := 0, 0
	tracer := &Tracer{
		GetResult: func() (json.RawMessage, error) { made++; return json.RawMessage("1"), nil },
		Stop:      func(error) { stops++ },
	}
	endStopped(tracer)
	res, err := tracer.GetResult()
	require.NoError(t, err)
	require.Equal(t, "1", string(res))
	first := errors.New("first")
	tracer.Stop(first)
	tracer.Stop(errors.New("second"))
	_, err = tracer.GetResult()
	require.Equal(t, first, err)
	require.Equal(t, []int{1, 2}, []int{made, stops})

	without := &Tracer{GetResult: tracer.GetResult}
	endStopped(without)
	without.Stop(first) // as upstream's keccak256PreimageTracer, which has none
}
