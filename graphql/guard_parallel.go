// SPDX-License-Identifier: LGPL-3.0-or-later

package graphql

import "github.com/ethereum/go-ethereum/node"

// upstreamParallelism is how many fields of a query the library resolves at once unless it
// is told otherwise.
const upstreamParallelism = 10

// queryParallelism returns how many fields of a query may be resolved at once. A guarded
// query has one processor permit, as an eth_call has: ten calls that loop, in one query of
// 600 bytes, were ten machines at work on it.
func queryParallelism(stack *node.Node) int {
	if c := stack.Config().RPCGuard; !c.Enabled || c.DryRun {
		return upstreamParallelism
	}
	return 1
}
