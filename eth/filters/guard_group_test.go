// SPDX-License-Identifier: LGPL-3.0-or-later

package filters

import (
	"encoding/json"
	"math/big"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/rpc"
	"github.com/stretchr/testify/require"
)

// groups returns the number of groups and of their members.
func (s *feedGroups[E]) count() (groups, members int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.groups {
		members += g.members.len()
	}
	return len(s.groups), members
}

// TestGuardEqualSubscriptionsShareASource: they make one group, which ends with its
// last member, and with it its goroutine and its place in the event system.
func TestGuardEqualSubscriptionsShareASource(t *testing.T) {
	s := newFilterServer(t, rpc.DefaultGuardConfig)
	clients := make([]*wireClient, 10)
	for i := range clients {
		clients[i] = s.dial(0)
		clients[i].call("rpc_modules")
	}
	ids := make([][]string, len(clients))
	for i, c := range clients {
		ids[i] = []string{
			c.make("eth_subscribe", "newHeads"),
			c.make("eth_subscribe", "logs", map[string]any{"address": common.Address{1}}),
			c.make("eth_subscribe", "logs", map[string]any{"address": common.Address{byte(i % 2)}, "fromBlock": "latest"}),
		}
	}
	groups, members := s.api.guard().heads.count()
	require.Equal(t, []int{1, 10}, []int{groups, members})
	groups, members = s.api.guard().logs.count()
	require.Equal(t, []int{2, 20}, []int{groups, members})
	require.Equal(t, 3, groupGoroutines())

	s.backend.chain.Send(chainEvent(testHeader(7)))
	for i, c := range clients {
		require.Equal(t, ids[i][0], c.read().Params.Subscription)
	}
	for i, c := range clients {
		if i%2 == 0 {
			c.Close()
			continue
		}
		for _, id := range ids[i] {
			c.call("eth_unsubscribe", id)
		}
	}
	s.eventually("groups end", func() bool {
		heads, _ := s.api.guard().heads.count()
		logs, _ := s.api.guard().logs.count()
		return heads+logs == 0
	})
	s.eventually("goroutines end", func() bool { return groupGoroutines() == 0 })

	c := s.dial(0) // the next one makes a new group
	id := c.make("eth_subscribe", "newHeads")
	s.backend.chain.Send(chainEvent(testHeader(8)))
	require.Equal(t, id, c.read().Params.Subscription)
}

// TestGuardEqualReceiptSubscriptionsShareASource, on releases that have them.
func TestGuardEqualReceiptSubscriptionsShareASource(t *testing.T) {
	s := newFilterServer(t, rpc.DefaultGuardConfig)
	for range 3 {
		if reply := s.dial(0).call("eth_subscribe", "transactionReceipts", nil); reply.Error != nil {
			t.Skip("there are no such subscriptions:", reply.Error.Message)
		}
	}
	require.Equal(t, 1, groupGoroutines())
}

// groupGoroutines counts the goroutines that groups have in this process.
func groupGoroutines() int {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return strings.Count(string(stacks), "filters.(*feedGroups[...]).run(")
}

// TestGuardNobodyJoinsBeforeTheSource: who joins a group that is being installed is
// answered when that is done, not before.
func TestGuardNobodyJoinsBeforeTheSource(t *testing.T) {
	s := newFilterServer(t, rpc.DefaultGuardConfig)
	blocker := make(chan *types.Header)
	source := s.api.events.SubscribeNewHeads(blocker)
	s.backend.chain.Send(chainEvent(testHeader(1))) // and the event loop stands still
	var replies atomic.Int32
	var clients []*wireClient
	var wg sync.WaitGroup
	for range 3 {
		c := s.dial(0)
		clients = append(clients, c)
		wg.Go(func() {
			c.make("eth_subscribe", "logs", map[string]any{})
			replies.Add(1)
		})
	}
	s.eventually("members", func() bool { _, members := s.api.guard().logs.count(); return members == 3 })
	other := s.dial(0)
	for range 50 { // time enough for a reply
		other.call("rpc_modules")
	}
	require.Zero(t, replies.Load(), "answered before its source was there")
	<-blocker
	source.Unsubscribe()
	wg.Wait()
	s.backend.logs.Send(testLogs(1, 1))
	for _, c := range clients {
		c.read()
	}
}

// TestGuardGroupsLoseNothing: subscribers come and go while blocks are made, so that
// groups begin, end and are joined in every moment; each subscriber gets the heads from
// its first to its last without a gap, and at least those that were made between its
// subscribe call's return and its unsubscribe call.
func TestGuardGroupsLoseNothing(t *testing.T) {
	cfg := rpc.DefaultGuardConfig // nobody waits for the readers, which a busy machine may leave far behind
	cfg.Sub.Events, cfg.Sub.Bytes, cfg.Sub.ConnBytes = 1<<30, 1<<30, 1<<30
	s := newFilterServer(t, cfg)
	var (
		mu   sync.Mutex
		head uint64
		stop = make(chan struct{})
		made = make(chan struct{})
	)
	go func() {
		defer close(made)
		for {
			select {
			case <-stop:
				return
			default:
			}
			mu.Lock()
			head++
			n := head
			mu.Unlock()
			s.backend.chain.Send(chainEvent(testHeader(n)))
		}
	}()
	current := func() uint64 { mu.Lock(); defer mu.Unlock(); return head }
	var clients []*wireClient
	for range 4 {
		clients = append(clients, s.dial(0))
	}
	var wg sync.WaitGroup
	for _, c := range clients {
		wg.Go(func() {
			for range 40 {
				id := c.make("eth_subscribe", "newHeads")
				after := current()
				var heads []uint64
				for len(heads) < 5 {
					heads = append(heads, headOf(t, c.read()))
				}
				c.call("eth_unsubscribe", id)
				for _, msg := range c.kept {
					heads = append(heads, headOf(t, msg))
				}
				c.kept = nil
				require.LessOrEqual(t, heads[0], after+1, "the first head is missing")
				for i, n := range heads {
					require.Equal(t, heads[0]+uint64(i), n, "gap")
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	<-made
	s.eventually("groups end", func() bool { groups, _ := s.api.guard().heads.count(); return groups == 0 })
}

func headOf(t *testing.T, msg wireMessage) uint64 {
	var head struct{ Number string }
	require.NoError(t, json.Unmarshal(msg.Params.Result, &head))
	n, ok := new(big.Int).SetString(head.Number, 0)
	require.True(t, ok)
	return n.Uint64()
}

// TestGuardRefusedCriteriaLeaveNoGroup: an error of upstream's reaches every client
// that asks, and leaves nothing.
func TestGuardRefusedCriteriaLeaveNoGroup(t *testing.T) {
	s := newFilterServer(t, rpc.DefaultGuardConfig)
	c := s.dial(0)
	for range 2 {
		reply := c.call("eth_subscribe", "logs", map[string]any{"fromBlock": "0x5", "toBlock": "0x1"})
		require.NotNil(t, reply.Error)
	}
	groups, _ := s.api.guard().logs.count()
	require.Zero(t, groups)
	c.make("eth_subscribe", "logs", map[string]any{})
}

// TestGuardDryRunSharesNothing: in a dry run a slow client holds its producer up, as on
// stock, so it must have one of its own.
func TestGuardDryRunSharesNothing(t *testing.T) {
	cfg := rpc.DefaultGuardConfig
	cfg.DryRun = true
	s := newFilterServer(t, cfg)
	a, b := s.dial(0), s.dial(0)
	ids := []string{a.make("eth_subscribe", "newHeads"), b.make("eth_subscribe", "newHeads")}
	groups, _ := s.api.guard().heads.count()
	require.Zero(t, groups)
	s.backend.chain.Send(chainEvent(testHeader(7)))
	require.Equal(t, ids[0], a.read().Params.Subscription)
	require.Equal(t, ids[1], b.read().Params.Subscription)
}

func TestGuardCriteriaKey(t *testing.T) {
	a1, a2 := common.Address{1}, common.Address{2}
	t1, t2 := common.Hash{1}, common.Hash{2}
	latest := big.NewInt(int64(rpc.LatestBlockNumber))
	same := []FilterCriteria{
		{Addresses: []common.Address{a1}, Topics: [][]common.Hash{{t1}, {}}},
		{Addresses: []common.Address{a1}, Topics: [][]common.Hash{{t1}, nil}, FromBlock: latest},
		{Addresses: []common.Address{a1}, Topics: [][]common.Hash{{t1}, nil}, FromBlock: latest, ToBlock: latest},
	}
	for _, crit := range same {
		require.Equal(t, criteriaKey(&same[0]), criteriaKey(&crit))
	}
	seen := map[string]bool{"": true, criteriaKey(&same[0]): true}
	for _, crit := range []FilterCriteria{
		{},
		{Addresses: []common.Address{a1}},
		{Addresses: []common.Address{a1, a2}},
		{Topics: [][]common.Hash{{t1}, {t2}}},
		{Topics: [][]common.Hash{{t1, t2}}},
		{Topics: [][]common.Hash{{t1, t2}, {}}},
		{Topics: [][]common.Hash{{}, {t1, t2}}},
		{Topics: [][]common.Hash{{}}},
		{Topics: [][]common.Hash{{t1}}},
		{Topics: [][]common.Hash{{t2}}},
	} {
		key := criteriaKey(&crit)
		require.False(t, seen[key], "%+v", crit)
		seen[key] = true
	}
	require.Empty(t, criteriaKey(&FilterCriteria{FromBlock: big.NewInt(1)}))
	require.Empty(t, criteriaKey(&FilterCriteria{ToBlock: big.NewInt(1)}))
}
