// SPDX-License-Identifier: LGPL-3.0-or-later

package filters

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math/big"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/internal/ethapi"
	"github.com/ethereum/go-ethereum/rpc"
)

// The subscriptions below stand in front of upstream's. They differ in what they
// hand to the notifier: one event for all that the node produced in one step, and
// the same event to every subscriber who asked for the same. So a block with more
// logs than a queue has places still counts as one event, the logs of a block leave
// in one write, and a header is encoded once for a thousand subscribers. Where
// notifications are not delivered through a bounded queue they are upstream's.

// NewHeads sends a notification for each new block of the chain.
func (api *FilterAPI) NewHeads(ctx context.Context) (*rpc.Subscription, error) {
	notifier, ok := boundedNotifier(ctx)
	if !ok {
		return api.newHeadsUnguarded(ctx)
	}
	sub := notifier.CreateSubscription()
	err := api.guard().heads.join("all", notifier, sub,
		func(headers chan *types.Header) (*Subscription, error) {
			return api.events.SubscribeNewHeads(headers), nil
		},
		func(header *types.Header) (*rpc.Event, error) {
			return encodeEvent(header.Number.Uint64(), []*types.Header{header})
		})
	return sub, err
}

// Logs sends a notification for each new or removed log that matches crit.
func (api *FilterAPI) Logs(ctx context.Context, crit FilterCriteria) (*rpc.Subscription, error) {
	notifier, ok := boundedNotifier(ctx)
	if !ok {
		return api.logsUnguarded(ctx, crit)
	}
	sub := notifier.CreateSubscription()
	err := api.guard().logs.join(criteriaKey(&crit), notifier, sub,
		func(logs chan []*types.Log) (*Subscription, error) {
			return api.events.SubscribeLogs(ethereum.FilterQuery(crit), logs)
		},
		api.guard().encodedLogs.event)
	if err != nil {
		return nil, err
	}
	return sub, nil
}

// criteriaKey is the same for criteria that ask for the same logs, as far as can be
// told cheaply. Those of a range of blocks are no others': whether upstream accepts
// one may change.
func criteriaKey(crit *FilterCriteria) string {
	latest := func(n *big.Int) bool { return n == nil || n.Cmp(big.NewInt(int64(rpc.LatestBlockNumber))) == 0 }
	if !latest(crit.FromBlock) || !latest(crit.ToBlock) {
		return ""
	}
	h := sha256.New() // criteria are large, and chosen by clients
	count := func(n int) { h.Write(binary.BigEndian.AppendUint64(nil, uint64(n))) }
	count(len(crit.Addresses))
	for _, addr := range crit.Addresses {
		h.Write(addr[:])
	}
	count(len(crit.Topics))
	for _, topics := range crit.Topics {
		count(len(topics))
		for _, topic := range topics {
			h.Write(topic[:])
		}
	}
	return string(h.Sum(nil))
}

// NewPendingTransactions sends a notification for each transaction that enters the
// pool: its hash, or all of it if fullTx is true.
func (api *FilterAPI) NewPendingTransactions(ctx context.Context, fullTx *bool) (*rpc.Subscription, error) {
	notifier, ok := boundedNotifier(ctx)
	if !ok {
		return api.newPendingTransactionsUnguarded(ctx, fullTx)
	}
	key, encode := "hashes", encodeHashes
	if fullTx != nil && *fullTx {
		key, encode = "full", api.encodeTransactions
	}
	sub := notifier.CreateSubscription()
	err := api.guard().txs.join(key, notifier, sub,
		func(txs chan []*types.Transaction) (*Subscription, error) {
			return api.events.SubscribePendingTxs(txs), nil
		}, encode)
	return sub, err
}

func encodeHashes(txs []*types.Transaction) (*rpc.Event, error) {
	hashes := make([]common.Hash, len(txs))
	for i, tx := range txs {
		hashes[i] = tx.Hash()
	}
	return encodeEvent(0, hashes)
}

// encodeTransactions makes the event of an announcement. What is sent of a
// transaction depends on the head it is seen from, so nothing is kept of it.
func (api *FilterAPI) encodeTransactions(txs []*types.Transaction) (*rpc.Event, error) {
	var (
		head   = api.sys.backend.CurrentHeader()
		config = api.sys.backend.ChainConfig()
		full   = make([]*ethapi.RPCTransaction, len(txs))
	)
	for i, tx := range txs {
		full[i] = ethapi.NewRPCPendingTransaction(tx, head, config)
	}
	return encodeEvent(0, full)
}

func boundedNotifier(ctx context.Context) (*rpc.Notifier, bool) {
	notifier, ok := rpc.NotifierFromContext(ctx)
	return notifier, ok && notifier.Bounded()
}
