// SPDX-License-Identifier: LGPL-3.0-or-later

package filters

import (
	"github.com/ethereum/go-ethereum/core"
	"github.com/ethereum/go-ethereum/core/types"
)

// chainEvent tells of a new head. Before v1.14.12 the event has the whole block.
func chainEvent(h *types.Header) core.ChainEvent { return core.ChainEvent{Header: h} }
