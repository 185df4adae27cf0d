// SPDX-License-Identifier: LGPL-3.0-or-later

package filters

import (
	"encoding/json"
	"math/big"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/params"
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

// encoded returns how many encodings are kept.
func (c *logCache) encoded() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.logs)
}

// TestGuardLogsAreEncodedOnce: whoever wants some of the logs that others want gets the
// same bytes.
func TestGuardLogsAreEncodedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c logCache
		logs := testLogs(5, 10)
		all, err := c.event(logs)
		require.NoError(t, err)
		some, err := c.event(logs[2:4])
		require.NoError(t, err)
		require.Less(t, some.Size(), all.Size())
		require.Equal(t, 10, c.encoded(), "encoded again")
		first, err := c.encode(logs[2])
		require.NoError(t, err)
		again, err := c.encode(logs[2])
		require.NoError(t, err)
		require.Same(t, &first[0], &again[0])

		other, err := c.event(testLogs(5, 10)) // equal, but not the same
		require.NoError(t, err)
		require.Equal(t, 20, c.encoded())
		require.Equal(t, all.Size(), other.Size())

		time.Sleep(recentTime + time.Second)
		synctest.Wait()
		require.Zero(t, c.encoded(), "kept alive by nobody")
		late, err := c.encode(logs[2])
		require.NoError(t, err)
		require.NotSame(t, &first[0], &late[0])
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

// TestGuardFullTransactionsDependOnTheHead: a transaction announced again under another
// head is told as it looks from there.
func TestGuardFullTransactionsDependOnTheHead(t *testing.T) {
	s := newFilterServer(t, rpc.DefaultGuardConfig)
	config := *params.TestChainConfig
	config.LondonBlock = big.NewInt(10) // before it, nobody has sent such a transaction
	s.backend.config = &config
	c := s.dial(0)
	c.make("eth_subscribe", "newPendingTransactions", true)
	key, err := crypto.GenerateKey()
	require.NoError(t, err)
	tx := types.MustSignNewTx(key, types.LatestSigner(&config), &types.DynamicFeeTx{
		ChainID: config.ChainID, GasFeeCap: big.NewInt(3000), GasTipCap: big.NewInt(1), Gas: 21000, To: &common.Address{1}, Value: new(big.Int),
	})
	for _, at := range []struct {
		head uint64
		from common.Address
	}{{5, common.Address{}}, {10, crypto.PubkeyToAddress(key.PublicKey)}, {6, common.Address{}}} {
		s.backend.head.Store(testHeader(at.head))
		s.backend.txs.Send(core.NewTxsEvent{Txs: []*types.Transaction{tx}})
		var got struct {
			From common.Address
			Hash common.Hash
		}
		require.NoError(t, json.Unmarshal(c.read().Params.Result, &got))
		require.Equal(t, tx.Hash(), got.Hash)
		require.Equal(t, at.from, got.From, "seen from %d", at.head)
	}
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
