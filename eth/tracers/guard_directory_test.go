// SPDX-License-Identifier: LGPL-3.0-or-later

package tracers

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/params"
	"github.com/ethereum/go-ethereum/rpc"
)

// tracedChain serves debug over HTTP for one block with a transaction that loops until
// its gas is used up: about a thousand steps.
func tracedChain(t *testing.T, change func(*rpc.GuardConfig)) *rpc.Client {
	t.Helper()
	var (
		account = newAccounts(1)[0]
		loop    = common.Address{0xcc}
	)
	backend := newTestBackend(t, 1, &core.Genesis{
		Config: params.TestChainConfig,
		Alloc: types.GenesisAlloc{
			account.addr: {Balance: big.NewInt(params.Ether)},
			loop:         {Code: common.FromHex("5b600056")},
		},
	}, func(i int, b *core.BlockGen) {
		tx, err := types.SignNewTx(account.key, types.HomesteadSigner{}, &types.LegacyTx{To: &loop, Gas: 30_000, GasPrice: b.BaseFee()})
		if err != nil {
			t.Fatal(err)
		}
		b.AddTx(tx)
	})
	t.Cleanup(backend.teardown)
	guard, err := rpc.NewGuard(rpc.DefaultGuardConfig, rpc.GuardEnv{Procs: 2, HTTPBodyLimit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		cfg := guard.Config()
		change(&cfg)
		if guard, err = rpc.NewGuard(cfg, rpc.GuardEnv{Procs: 2, HTTPBodyLimit: 1 << 20}); err != nil {
			t.Fatal(err)
		}
	}
	srv := newServer()
	srv.SetGuard(guard)
	t.Cleanup(srv.Stop)
	if err := srv.RegisterName("debug", NewAPI(backend)); err != nil {
		t.Fatal(err)
	}
	hs := httptest.NewServer(srv)
	t.Cleanup(hs.Close)
	client, err := rpc.Dial(hs.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// TestHookReachedTraceTx: what a trace records is counted, and what it gives is what
// upstream gives.
func TestHookReachedTraceTx(t *testing.T) {
	var plain, metered json.RawMessage
	if err := tracedChain(t, func(c *rpc.GuardConfig) { c.DryRun = true }).Call(&plain, "debug_traceBlockByNumber", "0x1"); err != nil {
		t.Fatal(err)
	}
	if err := tracedChain(t, nil).Call(&metered, "debug_traceBlockByNumber", "0x1"); err != nil {
		t.Fatal(err)
	}
	if len(metered) < 10_000 || len(plain) != len(metered) { // hashes differ
		t.Errorf("%d bytes metered, %d not", len(metered), len(plain))
	}
	registerCounts("guardCounts")
	small := tracedChain(t, func(c *rpc.GuardConfig) { c.Reply.Max = 64 << 10 })
	for _, config := range []map[string]any{nil, {"tracer": "guardCounts"}, {"tracer": meteredTracer}} {
		var reply json.RawMessage
		err := small.Call(&reply, "debug_traceBlockByNumber", "0x1", config)
		switch name := config["tracer"]; {
		case name == nil:
			// Not what the transaction's own entry would say after it was traced whole.
			var e rpc.Error
			if !errors.As(err, &e) || e.ErrorCode() != -32003 {
				t.Errorf("a trace beyond the bound: %v", err)
			}
		case name == meteredTracer:
			// An error of the transaction's own entry where a block is traced by several workers.
			if text := fmt.Sprint(string(reply), err); !strings.Contains(text, "cannot be asked for") {
				t.Errorf("%v: %s", name, text)
			}
		case err != nil:
			t.Errorf("%v: %v", name, err)
		}
	}
}

// Tracers that cannot be metered are refused where the operator says so.
func TestGuardRefusesJavaScript(t *testing.T) {
	client := tracedChain(t, func(c *rpc.GuardConfig) { c.Heavy.JSTracers = false })
	var reply json.RawMessage // or an error of the call: it depends on how the block is traced
	err := client.Call(&reply, "debug_traceBlockByNumber", "0x1", map[string]any{"tracer": "{result: function() { return 1 }}"})
	if text := fmt.Sprint(string(reply), err); !strings.Contains(text, errNoJavaScript.Error()) {
		t.Error(text)
	}
	if err := client.Call(nil, "debug_traceBlockByNumber", "0x1"); err != nil {
		t.Errorf("another tracer: %v", err)
	}
}

// TracedChain is for tests that need the packages of tracers, which import this one.
var TracedChain = tracedChain
