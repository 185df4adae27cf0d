// SPDX-License-Identifier: LGPL-3.0-or-later

package tracers

import (
	"context"
	"encoding/json"
	"math/big"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ethereum/go-ethereum/core"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/params"
	"github.com/ethereum/go-ethereum/rpc"
)

// TestGuardTracedChainKeepsItsPermit: the subscription to the traces of a chain has the
// heavy permit of the call that made it from then on until the last block is traced,
// and not for longer.
func TestGuardTracedChainKeepsItsPermit(t *testing.T) {
	const blocks = 20
	accounts := newAccounts(2)
	genesis := &core.Genesis{
		Config: params.TestChainConfig,
		Alloc:  types.GenesisAlloc{accounts[0].addr: {Balance: big.NewInt(params.Ether)}},
	}
	backend := newTestBackend(t, blocks, genesis, func(i int, b *core.BlockGen) {
		tx, err := types.SignTx(types.NewTransaction(uint64(i), accounts[1].addr, big.NewInt(1), params.TxGas, b.BaseFee(), nil),
			types.HomesteadSigner{}, accounts[0].key)
		require.NoError(t, err)
		b.AddTx(tx)
	})
	defer backend.teardown()
	goOn := make(chan struct{})
	backend.refHook = func() { <-goOn } // what a trace begins with

	cfg := rpc.DefaultGuardConfig
	cfg.Client.Local = true
	guard, err := rpc.NewGuard(cfg, rpc.GuardEnv{Procs: 4, HTTPBodyLimit: 1 << 20})
	require.NoError(t, err)
	srv := newServer()
	srv.SetGuard(guard)
	require.NoError(t, srv.RegisterName("debug", NewAPI(backend)))
	hs := httptest.NewServer(anyOrigin(srv))
	defer hs.Close()
	defer srv.Stop()
	resume := sync.OnceFunc(func() { close(goOn) })
	defer resume()
	heavy := func() int {
		return guard.APIs()[0].Service.(*rpc.GuardAPI).GetConcurrencyLimit().HeavyExecutingRequests
	}

	client, err := rpc.Dial("ws" + strings.TrimPrefix(hs.URL, "http"))
	require.NoError(t, err)
	defer client.Close()
	traces := make(chan json.RawMessage, 2*blocks)
	sub, err := client.Subscribe(context.Background(), "debug", traces, "traceChain", "0x0", "0x14", nil)
	require.NoError(t, err)
	defer sub.Unsubscribe()
	// The call has returned, which is when a method's permits go back.
	require.NoError(t, client.Call(nil, "rpc_modules"))
	require.Equal(t, 1, heavy(), "heavy calls while a chain is traced")

	resume()
	for n := range blocks {
		select {
		case <-traces:
		case err := <-sub.Err():
			t.Fatal("ended after", n, "blocks:", err)
		case <-time.After(30 * time.Second):
			t.Fatal("traced", n, "blocks")
		}
	}
	require.Eventually(t, func() bool { return heavy() == 0 }, 30*time.Second, 10*time.Millisecond,
		"the permit of a chain that is traced")
}
