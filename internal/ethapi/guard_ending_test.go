// SPDX-License-Identifier: LGPL-3.0-or-later

package ethapi

import (
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/consensus/beacon"
	"github.com/ethereum/go-ethereum/consensus/ethash"
	"github.com/ethereum/go-ethereum/core"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/params"
	"github.com/ethereum/go-ethereum/rpc"
	"github.com/stretchr/testify/require"
)

// boundedBackend is a backend of a node that was given other bounds.
type boundedBackend struct {
	Backend
	gas     uint64
	timeout time.Duration
}

func (b boundedBackend) RPCGasCap() uint64            { return b.gas }
func (b boundedBackend) RPCEVMTimeout() time.Duration { return b.timeout }

// boundedCalls serves eth for one block over HTTP, with those bounds. The function it
// returns makes a call and tells how long it took.
func boundedCalls(t *testing.T, guarded bool, gas uint64, timeout time.Duration) func(body string) (string, time.Duration) {
	gspec := &core.Genesis{Config: params.MergedTestChainConfig, GasLimit: 100_000_000, Alloc: types.GenesisAlloc{
		{0xee}: {Balance: big.NewInt(params.Ether)}, // who asks; older releases have them pay
	}}
	backend := newTestBackend(t, 1, gspec, beacon.New(ethash.NewFaker()), func(_ int, b *core.BlockGen) { b.SetPoS() })
	server := newServer()
	if guarded {
		g, err := rpc.NewGuard(rpc.DefaultGuardConfig, rpc.GuardEnv{Procs: 2, HTTPBodyLimit: 5 << 20})
		require.NoError(t, err)
		server.SetGuard(g)
	}
	require.NoError(t, server.RegisterName("eth", NewBlockChainAPI(boundedBackend{backend, gas, timeout})))
	h := httptest.NewServer(server)
	t.Cleanup(func() { h.Close(); server.Stop() })
	client := &http.Client{Timeout: 20 * time.Second} // what nothing ends ends with its client
	return func(body string) (string, time.Duration) {
		begun := time.Now()
		resp, err := client.Post(h.URL, "application/json", strings.NewReader(body))
		require.NoError(t, err)
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return strings.TrimSpace(string(b)), time.Since(begun) // older releases end a line
	}
}

const aborted = "execution aborted (timeout = 50ms)"

// An access list ends with its time, within a try and between them, and one that was cut
// short is not the answer.
func TestGuardAccessListEnds(t *testing.T) {
	call := func(code string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"eth_createAccessList","params":[{"from":"0xee00000000000000000000000000000000000000","to":"0x00000000000000000000000000000000000000cc"` + code + `},"latest"]}`
	}
	// A contract that is made runs its code: releases differ in whether state can be overridden.
	create := func(code string) string {
		return strings.Replace(call(`,"data":"`+code+`"`), `"to":"0x00000000000000000000000000000000000000cc",`, "", 1)
	}
	const (
		loop = "0x5b600056"
		// Reads slot 2 if there is much gas, and a slot named after the gas: each list changes
		// what is left, and so the next one.
		fresh = "0x5a6297b1de1015600e57600254505b5a5400"
	)
	_, took := boundedCalls(t, false, 50_000_000, time.Minute)(create(loop))
	reply, ended := boundedCalls(t, true, 50_000_000, 50*time.Millisecond)(create(loop))
	require.Contains(t, reply, aborted)
	require.Less(t, ended, took/2, "of a loop")
	reply, _ = boundedCalls(t, true, 10_000_000, 50*time.Millisecond)(create(fresh))
	require.Contains(t, reply, aborted)

	// What fits is what upstream makes of it: one slot, since the order of several is none.
	plain, _ := boundedCalls(t, false, 10_000_000, time.Second)(create("0x60015400"))
	reply, _ = boundedCalls(t, true, 10_000_000, time.Minute)(create("0x60015400"))
	require.Contains(t, plain, "storageKeys")
	require.Equal(t, plain, reply)
}
