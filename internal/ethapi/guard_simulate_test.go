// SPDX-License-Identifier: LGPL-3.0-or-later

package ethapi

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/consensus/beacon"
	"github.com/ethereum/go-ethereum/consensus/ethash"
	"github.com/ethereum/go-ethereum/core"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/params"
	"github.com/ethereum/go-ethereum/rpc"
	"github.com/stretchr/testify/require"
)

// The calls of a simulation count while they run: the request ends before a call that would
// have failed in its own way, which shows that those behind the limit do not run.
func TestGuardSimulateIsCounted(t *testing.T) {
	gspec := &core.Genesis{Config: params.MergedTestChainConfig, GasLimit: 100_000_000, Alloc: types.GenesisAlloc{}}
	backend := newTestBackend(t, 1, gspec, beacon.New(ethash.NewFaker()), func(_ int, b *core.BlockGen) { b.SetPoS() })
	serve := func(guarded bool) func(calls ...string) string {
		server := newServer()
		if guarded {
			cfg := rpc.DefaultGuardConfig
			cfg.Reply.Max = 1 << 20 // bsc has what a call reverts with twice in its result
			g, err := rpc.NewGuard(cfg, rpc.GuardEnv{Procs: 2, HTTPBodyLimit: 5 << 20})
			require.NoError(t, err)
			server.SetGuard(g)
		}
		require.NoError(t, server.RegisterName("eth", NewBlockChainAPI(backend)))
		h := httptest.NewServer(server)
		t.Cleanup(func() { h.Close(); server.Stop() })
		return func(calls ...string) string {
			body := `{"jsonrpc":"2.0","id":1,"method":"eth_simulateV1","params":[{"blockStateCalls":[{"stateOverrides":{` +
				`"0x00000000000000000000000000000000000000aa":{"code":"0x620100006000f3"},` + // returns 64 KiB
				`"0x00000000000000000000000000000000000000bb":{"code":"0x620100006000fd"},` + // reverts with them
				`"0x00000000000000000000000000000000000000cc":{"code":"0x620100006000a000"}},` + // logs them
				`"calls":[` + strings.Join(calls, ",") + `]}]},"latest"]}`
			resp, err := http.Post(h.URL, "application/json", strings.NewReader(body))
			require.NoError(t, err)
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			return strings.TrimSpace(string(b)) // older releases end a line
		}
	}
	stock, ours := serve(false), serve(true)
	const bad = `{"to":"0x00000000000000000000000000000000000000dd","gas":"0x1"}`
	for name, to := range map[string]string{"return": "aa", "revert": "bb", "log": "cc"} {
		call := fmt.Sprintf(`{"to":"0x%040s","gas":"0x100000"}`, to)
		few, many := strings.Split(strings.Repeat(call+" ", 3), " ")[:3], strings.Split(strings.Repeat(call+" ", 12), " ")[:12]
		want := stock(few...)
		require.Greater(t, len(want), 3*2*(64<<10), "%s: %.300s", name, want)
		require.Equal(t, len(want), len(ours(few...)), name) // they differ in times
		require.Contains(t, stock(append(many, bad)...), "-38013", name)
		require.Contains(t, ours(append(few, bad)...), "-38013", name)
		require.Contains(t, ours(append(many, bad)...), "-32003", name)
	}
}
