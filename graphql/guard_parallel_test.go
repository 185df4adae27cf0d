// SPDX-License-Identifier: LGPL-3.0-or-later

package graphql

import (
	"reflect"
	"testing"

	"github.com/ethereum/go-ethereum/node"
	"github.com/ethereum/go-ethereum/rpc"
	"github.com/stretchr/testify/require"
)

// TestHookReachedQueryParallelism: the calls of a guarded query run one after another,
// since it has one permit; upstream, and a guard that only counts, run ten of them at once.
// How many a schema allows shows no other way that does not depend on the machine.
func TestHookReachedQueryParallelism(t *testing.T) {
	for name, tc := range map[string]struct {
		guard  rpc.GuardConfig
		fields int64
	}{
		"stock":   {rpc.GuardConfig{}, upstreamParallelism},
		"guarded": {rpc.DefaultGuardConfig, 1},
		"dry run": {func() rpc.GuardConfig { c := rpc.DefaultGuardConfig; c.DryRun = true; return c }(), upstreamParallelism},
	} {
		stack, err := node.New(&node.Config{RPCGuard: tc.guard})
		require.NoError(t, err)
		defer stack.Close()
		h, err := newHandler(stack, nil, nil, nil, nil)
		require.NoError(t, err)
		require.Equal(t, tc.fields, reflect.ValueOf(h.Schema).Elem().FieldByName("maxParallelism").Int(), name)
	}
}
