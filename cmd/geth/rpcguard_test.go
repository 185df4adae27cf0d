// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/cmd/utils"
	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"
)

// The flags must reach the application, the commands that copy its list while
// variables are initialised, and the environment. This fails if aa_rpcguard.go
// is renamed such that other files' variables come first.
func TestGuardFlagsReachAll(t *testing.T) {
	lists := map[string][]cli.Flag{"geth": app.Flags}
	for _, cmd := range app.Commands {
		if slices.Contains([]string{"console", "attach", "dumpconfig"}, cmd.Name) {
			lists[cmd.Name] = cmd.Flags
		}
	}
	require.Len(t, lists, 4)
	delete(lists, "attach") // it talks to a running node and takes none of its flags
	for name, list := range lists {
		for _, want := range utils.RPCGuardFlags() {
			require.True(t, slices.ContainsFunc(list, func(f cli.Flag) bool {
				return f.Names()[0] == want.Names()[0]
			}), "%s lacks --%s", name, want.Names()[0])
		}
	}
	for _, f := range utils.RPCGuardFlags() {
		env := "GETH_" + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(f.Names()[0]))
		require.Contains(t, f.(cli.DocGenerationFlag).GetEnvVars(), env)
	}
}
