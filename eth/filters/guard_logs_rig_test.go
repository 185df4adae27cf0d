// SPDX-License-Identifier: LGPL-3.0-or-later

package filters

import (
	"context"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/consensus/ethash"
	"github.com/ethereum/go-ethereum/core"
	"github.com/ethereum/go-ethereum/core/rawdb"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethdb"
	"github.com/ethereum/go-ethereum/params"
	"github.com/ethereum/go-ethereum/rpc"
)

// searchService stands in for eth_getLogs: it searches, and returns only how much it has found: the
// reply is small, so that nothing but the meter can refuse it.
type searchService struct {
	search func(ctx context.Context) ([]*types.Log, error)
}

func (s searchService) GetLogs(ctx context.Context) (int, error) {
	logs, err := s.search(ctx)
	return len(logs), err
}

// searched calls the search on a server whose replies may have 1 MiB.
func searched(t *testing.T, search func(ctx context.Context) ([]*types.Log, error)) (found int, err error) {
	t.Helper()
	cfg := rpc.DefaultGuardConfig
	cfg.Reply.Max = 1 << 20
	guard, err := rpc.NewGuard(cfg, rpc.GuardEnv{Procs: 2, HTTPBodyLimit: 5 << 20})
	require.NoError(t, err)
	srv := newPlainServer()
	srv.SetGuard(guard)
	defer srv.Stop()
	require.NoError(t, srv.RegisterName("eth", searchService{search}))
	client := rpc.DialInProc(srv)
	defer client.Close()
	err = client.Call(&found, "eth_getLogs")
	return found, err
}

// logger is the contract that logs. An index serves queries for something, not for all.
var logger = common.Address{0xfe}

// loggingChain returns a chain of blocks with one log of 64 KiB each.
func loggingChain(t *testing.T, blocks int) ethdb.Database {
	t.Helper()
	var (
		key, _  = crypto.GenerateKey()
		from    = crypto.PubkeyToAddress(key.PublicKey)
		genesis = &core.Genesis{
			Config:   params.TestChainConfig,
			GasLimit: 30_000_000,
			BaseFee:  big.NewInt(params.InitialBaseFee),
			Alloc: types.GenesisAlloc{
				from:   {Balance: new(big.Int).Mul(big.NewInt(1000), big.NewInt(params.Ether))},
				logger: {Code: common.FromHex("61ffff6000a0")}, // LOG0 of 65535 bytes of nothing
			},
		}
	)
	db, chain, receipts := core.GenerateChainWithGenesis(genesis, ethash.NewFaker(), blocks, func(i int, gen *core.BlockGen) {
		tx, err := types.SignTx(types.NewTx(&types.LegacyTx{Nonce: uint64(i), GasPrice: gen.BaseFee(), Gas: 1_000_000, To: &logger}),
			types.HomesteadSigner{}, key)
		require.NoError(t, err)
		gen.AddTx(tx)
	})
	for i, block := range chain {
		require.Len(t, receipts[i][0].Logs, 1)
		rawdb.WriteBlock(db, block)
		rawdb.WriteCanonicalHash(db, block.Hash(), block.NumberU64())
		rawdb.WriteHeadBlockHash(db, block.Hash())
		rawdb.WriteReceipts(db, block.Hash(), block.NumberU64(), receipts[i])
	}
	return db
}

// requireMeteredQueries checks that a query of a chain of so many blocks that finds more than
// one reply may have ends with the meter's error, and that one that finds less is served.
func requireMeteredQueries(t *testing.T, backend *testBackend, blocks int64) {
	t.Helper()
	for last, code := range map[int64]int{10: 0, blocks: -32003} {
		found, err := searched(t, func(ctx context.Context) ([]*types.Log, error) {
			sys := NewFilterSystem(backend, Config{}) // no cache of the query before
			crit := FilterCriteria{FromBlock: big.NewInt(1), ToBlock: big.NewInt(last), Addresses: []common.Address{logger}}
			return newPlainAPI(sys).GetLogs(ctx, crit)
		})
		if code == 0 {
			require.NoError(t, err)
			require.Equal(t, 10, found)
			continue
		}
		var e rpc.Error
		require.ErrorAs(t, err, &e, "%d logs of 64 KiB were found", blocks)
		require.Equal(t, code, e.ErrorCode())
	}
}
