// SPDX-License-Identifier: LGPL-3.0-or-later

package filters

import (
	"fmt"
	"math/big"
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
)

// The model is upstream's own function: whatever the logs and the criteria, both
// find the same logs in the same order, and the criteria stay as they were.
func TestGuardFilterLogsIsUpstreams(t *testing.T) {
	const seed = 1
	r := rand.New(rand.NewSource(seed))
	address := func() common.Address { return common.BigToAddress(big.NewInt(r.Int63n(100))) }
	topic := func() common.Hash { return common.BigToHash(big.NewInt(r.Int63n(60))) }
	bound := func() *big.Int {
		if r.Intn(3) > 0 {
			return nil
		}
		return big.NewInt(r.Int63n(6) - 2) // also latest and pending
	}
	found := 0
	for i := range 20000 {
		logs := make([]*types.Log, r.Intn(30))
		for i := range logs {
			logs[i] = &types.Log{Address: address(), BlockNumber: uint64(r.Intn(5)), Topics: make([]common.Hash, r.Intn(5))}
			for j := range logs[i].Topics {
				logs[i].Topics[j] = topic()
			}
		}
		var addresses []common.Address
		for range r.Intn(2) * r.Intn(3*longList) {
			addresses = append(addresses, address())
		}
		topics := make([][]common.Hash, r.Intn(5))
		for j := range topics {
			for range r.Intn(2) * r.Intn(4*longList) {
				topics[j] = append(topics[j], topic())
			}
		}
		from, to := bound(), bound()
		kept, keptTopics := slices.Clone(addresses), slices.Clone(topics)
		want := filterLogsUnguarded(logs, from, to, addresses, topics)
		got := filterLogs(logs, from, to, addresses, topics)
		require.Equal(t, want, got, "seed %d, step %d: addresses %v, topics %v", seed, i, addresses, topics)
		require.Equal(t, kept, addresses)
		require.Equal(t, keptTopics, topics)
		found += len(want)
	}
	require.Greater(t, found, 1000, "the model must find something")
}

// TestHookReachedFilterLogs: upstream compares each log with each address in turn and
// allocates nothing where none is wanted; a set of the logs' addresses is allocated. Speed,
// which is what the hook is for, is no test's to judge (BenchmarkGuardFilterLogs, and the
// suite's criteria-pile-up).
func TestHookReachedFilterLogs(t *testing.T) {
	logs, addresses := make([]*types.Log, 100), make([]common.Address, 2*longList)
	for i := range logs {
		logs[i] = &types.Log{Address: common.BigToAddress(big.NewInt(int64(i)))}
	}
	for i := range addresses {
		addresses[i] = common.BigToAddress(big.NewInt(int64(1000 + i)))
	}
	require.Zero(t, testing.AllocsPerRun(10, func() { filterLogsUnguarded(logs, nil, nil, addresses, nil) }))
	require.NotZero(t, testing.AllocsPerRun(10, func() { filterLogs(logs, nil, nil, addresses, nil) }))
}

func BenchmarkGuardFilterLogs(b *testing.B) {
	logs := make([]*types.Log, 2000)
	for i := range logs {
		logs[i] = &types.Log{Address: common.BigToAddress(big.NewInt(int64(i % 50)))}
	}
	for _, n := range []int{1, longList, 1000, 10000} {
		addresses := make([]common.Address, n)
		for i := range addresses {
			addresses[i] = common.BigToAddress(big.NewInt(int64(1000 + i)))
		}
		for name, filter := range map[string]func([]*types.Log, *big.Int, *big.Int, []common.Address, [][]common.Hash) []*types.Log{
			"guard": filterLogs, "upstream": filterLogsUnguarded,
		} {
			b.Run(fmt.Sprintf("addresses=%d/%s", n, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					filter(logs, nil, nil, addresses, nil)
				}
			})
		}
	}
}
