// SPDX-License-Identifier: LGPL-3.0-or-later

package filters

import (
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core"
	"github.com/ethereum/go-ethereum/rpc"
	"github.com/stretchr/testify/require"
)

// TestGuardDeliversWhatUpstreamDelivers: the same events, the same bytes, in the
// same order, for every kind of subscription; removed logs included.
func TestGuardDeliversWhatUpstreamDelivers(t *testing.T) {
	kinds := map[string][]any{
		"heads":         {"newHeads"},
		"logs":          {"logs", map[string]any{}},
		"logs of one":   {"logs", map[string]any{"address": common.Address{1}}},
		"hashes":        {"newPendingTransactions"},
		"hashes, false": {"newPendingTransactions", false},
		"transactions":  {"newPendingTransactions", true},
	}
	if _, ok := reflect.TypeFor[*FilterAPI]().MethodByName("TransactionReceipts"); ok { // from v1.16.5 on
		kinds["receipts"] = []any{"transactionReceipts", map[string]any{}}
	}
	counts := map[string]int{"heads": 3, "logs": 13, "logs of one": 3, "hashes": 5, "hashes, false": 5, "transactions": 5}
	got := make([]map[string][]string, 2)
	for i, cfg := range []rpc.GuardConfig{{}, rpc.DefaultGuardConfig} {
		got[i] = make(map[string][]string)
		s := newFilterServer(t, cfg)
		clients := make(map[string]*wireClient)
		ids := make(map[string]string)
		for kind, params := range kinds {
			clients[kind] = s.dial(0)
			ids[kind] = clients[kind].make("eth_subscribe", params...)
		}
		s.script()
		for kind, n := range counts {
			for range n {
				msg := clients[kind].read()
				require.Equal(t, ids[kind], msg.Params.Subscription)
				got[i][kind] = append(got[i][kind], strings.ReplaceAll(msg.raw, ids[kind], "ID"))
			}
		}
		for kind, c := range clients {
			c.call("eth_unsubscribe", ids[kind])
			require.Empty(t, c.kept, kind)
		}
	}
	require.Equal(t, got[0], got[1])
}

// TestGuardSlowSubscriberDoesNotHoldUpTheFeed: the feed that block import sends on
// takes events at once while a subscriber reads nothing, and a healthy one next to
// it gets every head. It fails on stock within seconds.
func TestGuardSlowSubscriberDoesNotHoldUpTheFeed(t *testing.T) {
	s := newFilterServer(t, rpc.DefaultGuardConfig)
	longest, ok := s.runSlowSubscriber()
	require.True(t, ok)
	require.Less(t, longest, 500*time.Millisecond)
}

func TestGuardSlowSubscriberHoldsUpStocksFeed(t *testing.T) {
	if guardStandIn != nil {
		t.Skip("the stand-in guards the stock server of this test, too")
	}
	s := newFilterServer(t, rpc.GuardConfig{})
	_, ok := s.runSlowSubscriber()
	require.False(t, ok)
}

func (s *filterServer) runSlowSubscriber() (longest time.Duration, ok bool) {
	slow, polite := s.dial(4096), s.dial(0)
	slow.make("eth_subscribe", "newPendingTransactions", true)
	polite.make("eth_subscribe", "newHeads")
	heads := make(chan uint64, 1000)
	go func() {
		for {
			_, data, err := polite.ReadMessage()
			if err != nil {
				close(heads)
				return
			}
			var msg struct {
				Params struct{ Result struct{ Number string } }
			}
			json.Unmarshal(data, &msg)
			n, _ := new(big.Int).SetString(msg.Params.Result.Number, 0)
			heads <- n.Uint64()
		}
	}()
	txs := testTxs(1, 60_000)
	for i := range uint64(200) {
		sent := make(chan time.Duration, 1)
		go func() {
			start := time.Now()
			s.backend.txs.Send(core.NewTxsEvent{Txs: txs})
			s.backend.chain.Send(chainEvent(testHeader(i)))
			sent <- time.Since(start)
		}()
		select {
		case d := <-sent:
			longest = max(longest, d)
		case <-time.After(2 * time.Second):
			slow.Close()
			return longest, false
		}
		select {
		case n := <-heads:
			require.Equal(s.t, i, n, "head lost")
		case <-time.After(2 * time.Second):
			slow.Close()
			return longest, false
		}
	}
	return longest, true
}

// TestGuardLargeBlockReachesHealthySubscribers: more logs, and more transactions in
// one announcement, than a queue has places.
func TestGuardLargeBlockReachesHealthySubscribers(t *testing.T) {
	cfg := rpc.DefaultGuardConfig
	cfg.Sub.Events, cfg.Sub.Bytes = 2, 1000
	s := newFilterServer(t, cfg)
	var clients []*wireClient
	for range 5 {
		c := s.dial(0)
		c.make("eth_subscribe", "logs", map[string]any{})
		c.make("eth_subscribe", "newPendingTransactions")
		clients = append(clients, c)
	}
	const n = 5000
	s.backend.logs.Send(testLogs(7, n))
	s.backend.txs.Send(core.NewTxsEvent{Txs: testTxs(n, 0)})
	for _, c := range clients {
		seen := make(map[string]int)
		for range 2 * n {
			seen[c.read().Params.Subscription]++
		}
		for _, count := range seen {
			require.Equal(t, n, count)
		}
	}
}

// TestGuardFilterOverflow: a polling filter that nobody polls is uninstalled when it
// holds too much, and says so; one that is polled goes on.
func TestGuardFilterOverflow(t *testing.T) {
	cfg := rpc.DefaultGuardConfig
	cfg.Filter.Bytes = 100_000
	s := newFilterServer(t, cfg)
	c := s.dial(0)
	lazy := c.make("eth_newPendingTransactionFilter", true)
	polled := c.make("eth_newPendingTransactionFilter", true)
	logs := c.make("eth_newFilter", map[string]any{})
	blocks := c.make("eth_newBlockFilter")
	for i := range 30 {
		s.backend.txs.Send(core.NewTxsEvent{Txs: testTxs(1, 8_000)})
		s.backend.logs.Send(testLogs(uint64(i), 1))
		s.backend.chain.Send(chainEvent(testHeader(uint64(i))))
		var txs []any
		s.eventually("transaction", func() bool {
			reply := c.call("eth_getFilterChanges", polled)
			require.Nil(t, reply.Error)
			require.NoError(t, json.Unmarshal(reply.Result, &txs))
			return len(txs) > 0
		})
		require.Len(t, txs, 1)
		s.eventually("head", func() bool {
			s.api.filtersMu.Lock()
			defer s.api.filtersMu.Unlock()
			return len(s.api.filters[rpc.ID(logs)].logs) == i+1 && len(s.api.filters[rpc.ID(blocks)].hashes) == i+1
		})
	}
	s.api.filtersMu.Lock()
	for _, id := range []string{logs, blocks} {
		f, p := s.api.filters[rpc.ID(id)], s.api.guard().polling[rpc.ID(id)]
		require.Positive(t, p.queued)
		require.Equal(t, queuedSize(f), p.queued)
	}
	s.api.filtersMu.Unlock()
	reply := c.call("eth_getFilterChanges", lazy)
	require.NotNil(t, reply.Error)
	require.Equal(t, "filter not found", reply.Error.Message)
	for _, id := range []string{logs, blocks} {
		reply := c.call("eth_getFilterChanges", id)
		require.Nil(t, reply.Error)
		var changes []any
		require.NoError(t, json.Unmarshal(reply.Result, &changes))
		require.Len(t, changes, 30)
	}
	for _, id := range []string{polled, logs, blocks} {
		require.Equal(t, "true", string(c.call("eth_uninstallFilter", id).Result))
	}
	s.api.filtersMu.Lock()
	defer s.api.filtersMu.Unlock()
	require.Zero(t, s.api.guard().queued)
	require.Empty(t, s.api.guard().polling)
}

// TestGuardFilterLimit refuses with -32005 what one client has too many of; a place
// comes back with the filter.
func TestGuardFilterLimit(t *testing.T) {
	cfg := rpc.DefaultGuardConfig
	cfg.Filter.MaxPerClient = 3
	s := newFilterServer(t, cfg)
	c := s.dial(0)
	first := c.make("eth_newBlockFilter")
	c.make("eth_newPendingTransactionFilter", true)
	c.make("eth_newFilter", map[string]any{})
	for _, method := range []string{"eth_newBlockFilter", "eth_newPendingTransactionFilter"} {
		reply := c.call(method)
		require.Equal(t, -32005, reply.Error.Code)
		require.Equal(t, map[string]any{"limit": 3.0}, reply.Error.Data)
	}
	require.NotNil(t, s.dial(0).call("eth_newBlockFilter").Error, "another connection of the same client")
	require.Equal(t, "true", string(c.call("eth_uninstallFilter", first).Result))
	c.make("eth_newBlockFilter")
	s.api.filtersMu.Lock()
	defer s.api.filtersMu.Unlock()
	require.Len(t, s.api.filters, 3)
}

// TestGuardFiltersTogether: when all filters hold too much, the one not polled for
// longest goes.
func TestGuardFiltersTogether(t *testing.T) {
	cfg := rpc.DefaultGuardConfig
	cfg.Filter.Bytes, cfg.Filter.TotalBytes = 50_000, 100_000
	s := newFilterServer(t, cfg)
	c := s.dial(0)
	var ids []string
	for range 4 {
		ids = append(ids, c.make("eth_newPendingTransactionFilter", true))
	}
	txs := testTxs(1, 10_000)
	for _, events := range []int64{4, 8, 9} { // of the last four, the first filter's are gone
		s.backend.txs.Send(core.NewTxsEvent{Txs: txs})
		s.eventually("transaction", func() bool {
			s.api.filtersMu.Lock()
			defer s.api.filtersMu.Unlock()
			return s.api.guard().queued == events*txsSize(txs)
		})
	}
	var lost []int
	for i, id := range ids {
		if c.call("eth_getFilterChanges", id).Error != nil {
			lost = append(lost, i)
		}
	}
	s.api.filtersMu.Lock()
	defer s.api.filtersMu.Unlock()
	require.Equal(t, []int{0}, lost, fmt.Sprint(s.api.guard().queued))
}

// TestGuardHeaviestFilter names the loser among clients.
func TestGuardHeaviestFilter(t *testing.T) {
	now := time.Now()
	g := &guardFilters{polling: map[rpc.ID]*pollingFilter{
		"a1": {client: "a", polled: now, queued: 50},
		"a2": {client: "a", polled: now.Add(-time.Minute), queued: 40},
		"a3": {client: "a", polled: now.Add(-time.Hour), queued: 0},
		"b1": {client: "b", polled: now.Add(-time.Hour), queued: 10},
		"c1": {client: "c", polled: now, queued: 60},
	}}
	require.EqualValues(t, "a2", g.heaviestLocked("b1"), "the greediest, its oldest that holds anything")
	require.EqualValues(t, "a2", g.heaviestLocked("a1"))
	require.EqualValues(t, "c1", g.heaviestLocked("c1"), "would have more than the loser keeps")
}
