// SPDX-License-Identifier: LGPL-3.0-or-later

package filters

import (
	"context"

	"github.com/ethereum/go-ethereum/core/types"
)

// A log query holds what it has found until it ends, over any number of blocks.
// What it finds is counted by the call's meter as it is found, and the query stops
// when that does not fit: at reply.max, or when all replies together are too many.
// In these releases a search through the index ends in the same function for each block
// as one without.

// checkMatches stands in front of upstream's function of that name.
func (f *Filter) checkMatches(ctx context.Context, header *types.Header) ([]*types.Log, error) {
	return meteredLoad(ctx, func() ([]*types.Log, error) { return f.checkMatchesUnguarded(ctx, header) })
}
