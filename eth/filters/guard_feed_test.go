// SPDX-License-Identifier: LGPL-3.0-or-later

package filters

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/rpc"
	"github.com/stretchr/testify/require"
)

// How long a feed's sender is held up is told exactly on a clock that stands still
// while anybody computes: on it only waiting takes time.

// TestGuardFeedSendNeverWaits: eight subscribers of each kind read nothing at all. What
// block import and the transaction pool do to tell the event system takes no time, and
// a subscriber who reads has each head in no time.
func TestGuardFeedSendNeverWaits(t *testing.T) {
	for _, overflow := range []string{"close", "unsubscribe"} {
		synctest.Test(t, func(t *testing.T) {
			cfg := rpc.DefaultGuardConfig
			cfg.Sub.Overflow = overflow
			send, head := heldUp(t, cfg)
			require.Zero(t, send, "a feed waited")
			require.Zero(t, head, "the polite subscriber waited")
		})
	}
}

// TestGuardFeedSendWaitsOnStock shows that the clock above would tell.
func TestGuardFeedSendWaitsOnStock(t *testing.T) {
	if guardStandIn != nil {
		t.Skip("a guard stands in for none")
	}
	synctest.Test(t, func(t *testing.T) {
		send, head := heldUp(t, rpc.GuardConfig{})
		require.Greater(t, send, 5*time.Second)
		require.Greater(t, head, 5*time.Second)
	})
}

// heldUp returns how long a feed's sender, and a polite subscriber to new heads, are
// held up at most by subscribers that read nothing.
func heldUp(t *testing.T, cfg rpc.GuardConfig) (send, head time.Duration) {
	guard, err := rpc.NewGuard(cfg, rpc.GuardEnv{Procs: 2, HTTPBodyLimit: 5 << 20})
	require.NoError(t, err)
	backend := new(feedBackend)
	backend.head.Store(testHeader(1))
	sys := NewFilterSystem(backend, Config{})
	api := &FilterAPI{sys: sys, events: newPlainEvents(sys), filters: make(map[rpc.ID]*filter)}
	srv := newPlainServer()
	srv.SetGuard(guard)
	require.NoError(t, srv.RegisterName("eth", api))
	var conns []net.Conn
	defer func() {
		for _, conn := range conns {
			conn.Close()
		}
		srv.Stop()
		time.Sleep(time.Minute)         // of the bubble: whatever still waits ends
		api.events.txsSub.Unsubscribe() // ends the event loop
	}()
	subscribe := func(params ...any) *bufio.Reader {
		server, client := net.Pipe()
		go srv.ServeCodec(rpc.NewCodec(server), 0)
		conns = append(conns, client)
		request, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "eth_subscribe", "params": params})
		require.NoError(t, err)
		go client.Write(request)
		r := bufio.NewReader(client)
		line, err := r.ReadString('\n')
		require.NoError(t, err)
		require.Contains(t, line, "result")
		return r
	}
	for range 8 {
		subscribe("newHeads")
		subscribe("logs", map[string]any{})
		subscribe("newPendingTransactions")
		subscribe("newPendingTransactions", true)
	}
	polite, taken := subscribe("newHeads"), make(chan uint64, 1)
	synctest.Wait() // before v1.17 a subscription is answered before it is installed
	go func() {
		for {
			line, err := polite.ReadBytes('\n')
			if err != nil {
				return
			}
			var msg struct {
				Params struct {
					Result struct{ Number hexutil.Uint64 }
				}
			}
			json.Unmarshal(line, &msg)
			taken <- uint64(msg.Params.Result.Number)
		}
	}()
	txs, logs := testTxs(20, 60_000), testLogs(1, 200)
	for n := range uint64(20) {
		start := time.Now()
		for _, tx := range txs { // 120 KB of hexadecimal digits each: 48 MB in all
			backend.txs.Send(core.NewTxsEvent{Txs: []*types.Transaction{tx}})
		}
		backend.logs.Send(logs)
		backend.chain.Send(chainEvent(testHeader(n)))
		// A feed that did not wait has the event in a channel: the event loop may.
		settleIn(api)
		send = max(send, time.Since(start))
		require.Equal(t, n, <-taken, fmt.Sprint("head ", n, " lost"))
		head = max(head, time.Since(start))
		if send > 0 {
			return send, head
		}
	}
	return send, head
}

// settleIn returns when the event loop has taken what was sent and is free.
func settleIn(api *FilterAPI) {
	es := api.events
	for len(es.txsCh)+len(es.logsCh)+len(es.rmLogsCh)+len(es.chainCh) > 0 {
		es.SubscribeNewHeads(make(chan *types.Header, 100)).Unsubscribe()
	}
	es.SubscribeNewHeads(make(chan *types.Header, 100)).Unsubscribe()
}
