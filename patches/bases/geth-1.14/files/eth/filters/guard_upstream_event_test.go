// SPDX-License-Identifier: LGPL-3.0-or-later

package filters

import (
	"reflect"

	"github.com/ethereum/go-ethereum/core"
	"github.com/ethereum/go-ethereum/core/types"
)

// chainEvent tells of a new head. The header came with v1.14.12; before, the event has
// the whole block.
func chainEvent(h *types.Header) (e core.ChainEvent) {
	fields := reflect.ValueOf(&e).Elem()
	if f := fields.FieldByName("Header"); f.IsValid() {
		f.Set(reflect.ValueOf(h))
	} else {
		fields.FieldByName("Block").Set(reflect.ValueOf(types.NewBlockWithHeader(h)))
	}
	return e
}
