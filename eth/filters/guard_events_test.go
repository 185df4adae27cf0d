// SPDX-License-Identifier: LGPL-3.0-or-later

package filters

import (
	"encoding/json"
	"errors"
	"math/big"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/rpc"
	"github.com/stretchr/testify/require"
)

func testLogs(block uint64, n int) []*types.Log {
	logs := make([]*types.Log, n)
	for i := range logs {
		logs[i] = &types.Log{Address: common.Address{byte(i)}, Topics: []common.Hash{{1}}, Data: []byte{byte(i)}, BlockNumber: block, Index: uint(i)}
	}
	return logs
}

// TestGuardLogsAreEncodedOnce: whoever wants the same logs gets the same event, and
// whoever wants some of them gets the same bytes.
func TestGuardLogsAreEncodedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c logCache
		logs := testLogs(5, 10)
		all, err := c.get(logs)
		require.NoError(t, err)
		again, err := c.get(append([]*types.Log(nil), logs...))
		require.NoError(t, err)
		require.Same(t, all, again)

		some, err := c.get(logs[2:4])
		require.NoError(t, err)
		require.NotSame(t, all, some)
		require.Len(t, c.logs, 10, "encoded again")

		other, err := c.get(testLogs(5, 10)) // equal, but not the same
		require.NoError(t, err)
		require.NotSame(t, all, other)

		time.Sleep(recentTime + time.Second)
		synctest.Wait()
		require.Empty(t, c.logs, "kept alive by nobody")
		require.Empty(t, c.events.recent)
		late, err := c.get(logs)
		require.NoError(t, err)
		require.NotSame(t, all, late)
		require.Equal(t, all.Size(), late.Size())
		time.Sleep(recentTime + time.Second)
	})
}

// TestGuardReorgedLogsAreEncodedAnew: a log that was removed by a reorg is another
// event than the one that was added, should the node use the same record for both.
func TestGuardReorgedLogsAreEncodedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c logCache
		log := testLogs(5, 1)[0]
		added, err := c.encode(log)
		require.NoError(t, err)
		removed := *log
		removed.Removed = true
		gone, err := c.encode(&removed)
		require.NoError(t, err)
		log.Removed = true
		same, err := c.encode(log)
		require.NoError(t, err)
		require.JSONEq(t, string(gone), string(same))
		require.NotEqual(t, string(added), string(gone))
		time.Sleep(recentTime + time.Second)
	})
}

// TestGuardEventCacheKeepsFew: the newest event, and of the older ones no more than
// a few and a few bytes.
func TestGuardEventCacheKeepsFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c eventCache
		made := 0
		get := func(key any, size int) *rpc.Event {
			ev, err := c.get(key, func() (*rpc.Event, error) {
				made++
				return rpc.NewEvent(0, []json.RawMessage{make(json.RawMessage, size)}), nil
			})
			require.NoError(t, err)
			return ev
		}
		recent := func() int {
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.recent)
		}
		for i := range 10 {
			get(i, 10)
			require.LessOrEqual(t, recent(), recentEvents)
		}
		require.Equal(t, 10, made)
		get(9, 10)
		get(7, 10)
		require.Equal(t, 10, made)
		get(0, 10)
		require.Equal(t, 11, made)

		get("large", recentBytes)
		get("large", recentBytes)
		require.Equal(t, 12, made)
		get("next", 10)
		require.Equal(t, 1, recent(), "a large event is kept beside the newest")

		get(nil, 10)
		get(nil, 10)
		require.Equal(t, 15, made)
		time.Sleep(recentTime + time.Second)
	})
}

func TestGuardEventCacheOfErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c eventCache
		for range 2 {
			_, err := c.get(1, func() (*rpc.Event, error) { return nil, errors.New("no") })
			require.Error(t, err)
		}
		time.Sleep(recentTime + time.Second)
	})
}

// TestGuardEventCacheManyAtOnce: a thousand subscribers, one encoding.
func TestGuardEventCacheManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			c    eventCache
			wg   sync.WaitGroup
			mu   sync.Mutex
			made int
		)
		for range 1000 {
			wg.Go(func() {
				_, err := c.get(headKey{nil}, func() (*rpc.Event, error) {
					mu.Lock()
					made++
					mu.Unlock()
					runtime.Gosched()
					return rpc.NewEvent(0, nil), nil
				})
				require.NoError(t, err)
			})
		}
		wg.Wait()
		require.Equal(t, 1, made)
		time.Sleep(recentTime + time.Second)
	})
}

// TestGuardFullTransactionsDependOnTheHead: the same announcement seen from another
// head is another event, and hashes are none of either.
func TestGuardFullTransactionsDependOnTheHead(t *testing.T) {
	tx := types.NewTx(&types.LegacyTx{Nonce: 1})
	a := txKey{first: tx, n: 1, head: common.Hash{1}}
	require.True(t, sameKey(a, txKey{first: tx, n: 1, head: common.Hash{1}}))
	require.False(t, sameKey(a, txKey{first: tx, n: 1, head: common.Hash{2}}))
	require.False(t, sameKey(a, txKey{first: tx, n: 1, hashes: true}))
	require.False(t, sameKey(a, txKey{first: tx, n: 2, head: common.Hash{1}}))
	require.False(t, sameKey(a, logsKey(testLogs(1, 1))))
	require.False(t, sameKey(logsKey(testLogs(1, 1)), a))
}

// TestGuardEventOfHeader has the number that a dropped client is told.
func TestGuardEventOfHeader(t *testing.T) {
	header := &types.Header{Number: big.NewInt(7), Difficulty: new(big.Int)}
	ev, err := encodeEvent(7, []*types.Header{header})
	require.NoError(t, err)
	want, err := json.Marshal(header)
	require.NoError(t, err)
	require.EqualValues(t, len(want), ev.Size()-eventOverhead(t))
	_, err = encodeEvent(0, []any{func() {}})
	require.Error(t, err)
}

func eventOverhead(t *testing.T) int64 {
	return rpc.NewEvent(0, []json.RawMessage{nil}).Size()
}
