// SPDX-License-Identifier: LGPL-3.0-or-later

package tracers

import (
	"encoding/json"

	"github.com/ethereum/go-ethereum/core/tracing"
)

// registerCounts adds a tracer to the directory that only counts steps.
func registerCounts(name string) {
	DefaultDirectory.Register(name, func(*Context, json.RawMessage) (*Tracer, error) {
		steps := 0
		return &Tracer{
			Hooks:     &tracing.Hooks{OnOpcode: func(uint64, byte, uint64, uint64, tracing.OpContext, []byte, int, error) { steps++ }},
			GetResult: func() (json.RawMessage, error) { return json.Marshal(steps) },
			Stop:      func(error) {},
		}, nil
	}, false)
}
