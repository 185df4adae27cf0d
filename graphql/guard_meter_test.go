// SPDX-License-Identifier: LGPL-3.0-or-later

package graphql

import (
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/node"
	"github.com/ethereum/go-ethereum/params"
	"github.com/ethereum/go-ethereum/rpc"
	"github.com/stretchr/testify/require"
)

const (
	large       = 20 << 10 // bytes of every value below
	inputBlocks = 40       // blocks 1 to 40 have a transaction with that much input
	logBlocks   = 40       // blocks 41 to 80 one with that much log data
)

// serveQueries starts a node whose chain has large values of every kind, guarded if
// change is given. It returns a function that asks it.
func serveQueries(t *testing.T, change func(*rpc.GuardConfig)) func(query string) (int, string) {
	cfg := node.Config{HTTPHost: "127.0.0.1", HTTPTimeouts: node.DefaultConfig.HTTPTimeouts}
	if change != nil {
		cfg.RPCGuard = rpc.DefaultGuardConfig
		change(&cfg.RPCGuard)
	}
	stack, err := node.New(&cfg)
	require.NoError(t, err)
	t.Cleanup(func() { stack.Close() })

	// Copies its code to memory, logs and returns it.
	code := common.Hex2Bytes("615000600060003961500060" + "00a06150006000f3")
	code = append(code, make([]byte, large-len(code))...)
	key, _ := crypto.ToECDSA(crypto.Keccak256([]byte("sender")))
	contract, sink := common.HexToAddress("0xc0de"), common.HexToAddress("0x51")
	genesis := &core.Genesis{
		Config: params.AllEthashProtocolChanges, GasLimit: 11500000, Difficulty: big.NewInt(1048576),
		Alloc: types.GenesisAlloc{
			crypto.PubkeyToAddress(key.PublicKey): {Balance: big.NewInt(params.Ether)},
			contract:                              {Code: code, Balance: new(big.Int)},
		},
	}
	signer := types.LatestSigner(genesis.Config)
	newGQLService(t, stack, false, genesis, inputBlocks+logBlocks, func(i int, gen *core.BlockGen) {
		tx := &types.LegacyTx{Nonce: uint64(i), Gas: 1_000_000, GasPrice: big.NewInt(params.InitialBaseFee), To: &contract}
		if i < inputBlocks {
			tx.To, tx.Data = &sink, make([]byte, large)
		}
		gen.AddTx(types.MustSignNewTx(key, signer, tx))
	})
	require.NoError(t, stack.Start())
	return func(query string) (int, string) {
		body, _ := json.Marshal(map[string]string{"query": query})
		resp, err := http.Post(stack.HTTPEndpoint()+"/graphql", "application/json", strings.NewReader(string(body)))
		require.NoError(t, err)
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(b)
	}
}

// aliases returns a query that asks n times for the same.
func aliases(n int, what string) string {
	var b strings.Builder
	b.WriteString("{")
	for i := range n {
		fmt.Fprintf(&b, "a%d: %s ", i, what)
	}
	return b.String() + "}"
}

// Values of bytes count as reply while a query is resolved: three of them fit, twenty do not.
func TestGuardQueryBytesAreCounted(t *testing.T) {
	values := map[string][2]string{ // where it is, and what it is called
		"code":       {`{block(number: 80) {account(address: "0x000000000000000000000000000000000000c0de") %s}}`, "code"},
		"log":        {`{block(number: 80) {transactionAt(index: 0) {logs %s}}}`, "data"},
		"inputData":  {`{block(number: 1) {transactionAt(index: 0) %s}}`, "inputData"},
		"raw":        {`{block(number: 1) {transactionAt(index: 0) %s}}`, "raw"},
		"rawReceipt": {`{block(number: 80) {transactionAt(index: 0) %s}}`, "rawReceipt"},
		"block raw":  {`{block(number: 1) %s}`, "raw"},
		"call":       {`{block(number: 80) {call(data: {to: "0x000000000000000000000000000000000000c0de"}) %s}}`, "data"},
	}
	stock := serveQueries(t, nil)
	ours := serveQueries(t, func(c *rpc.GuardConfig) { c.Reply.Max = 256 << 10 })
	for name, value := range values {
		ask := func(n int) string { return fmt.Sprintf(value[0], aliases(n, value[1])) }
		_, want := stock(ask(3))
		require.Greater(t, len(want), 3*2*large, "%s: %.300s", name, want)
		status, got := ours(ask(3))
		require.Equal(t, http.StatusOK, status, "%s: %.300s", name, got)
		require.Equal(t, want, got, name)

		status, got = ours(ask(20))
		require.Equal(t, http.StatusServiceUnavailable, status, "%s: %.300s", name, got)
		require.Contains(t, got, "-32003", name)
	}
}

// What the backend loads for a query, and each of its fields, is memory beside the reply.
func TestGuardQueryLoadsAreCounted(t *testing.T) {
	queries := map[string]string{
		"blocks":   `{blocks(from: 1, to: 40) {transactionCount}}`,
		"receipts": `{blocks(from: 41, to: 80) {transactionAt(index: 0) {status}}}`,
		"fields":   `{blocks(from: 41, to: 80) {` + strings.Trim(aliases(30, "hash"), "{}") + `}}`,
	}
	small := serveQueries(t, func(c *rpc.GuardConfig) { c.Reply.Max, c.Reply.Budget = 400<<10, 400<<10 })
	ample := serveQueries(t, func(c *rpc.GuardConfig) {})
	for name, query := range queries {
		status, got := ample(query)
		require.Equal(t, http.StatusOK, status, "%s: %.300s", name, got)
		status, got = small(query)
		require.Equal(t, http.StatusServiceUnavailable, status, "%s: %.300s", name, got)
		require.Contains(t, got, "-32005", name)
		status, got = small(`{block(number: 1) {hash}}`)
		require.Equal(t, http.StatusOK, status, "%s: %.300s", name, got)
	}
}
