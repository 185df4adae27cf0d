// SPDX-License-Identifier: LGPL-3.0-or-later

package filters

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/internal/ethapi"
	"github.com/ethereum/go-ethereum/rpc"
)

// The subscriptions below stand in front of upstream's. They differ in what they
// hand to the notifier: one event for all that the node produced in one step, and
// the same event to every subscriber. So a block with more logs than a queue has
// places still counts as one event, the logs of a block leave in one write, and a
// header is encoded once for a thousand subscribers. Where notifications are not
// delivered through a bounded queue they are upstream's.

// NewHeads sends a notification for each new block of the chain.
func (api *FilterAPI) NewHeads(ctx context.Context) (*rpc.Subscription, error) {
	notifier, ok := boundedNotifier(ctx)
	if !ok {
		return api.newHeadsUnguarded(ctx)
	}
	var (
		sub     = notifier.CreateSubscription()
		headers = make(chan *types.Header)
		source  = api.events.SubscribeNewHeads(headers)
	)
	go forward(sub, source, headers, func(header *types.Header) {
		ev, err := api.guard().headEvents.get(headKey{header}, func() (*rpc.Event, error) {
			return encodeEvent(header.Number.Uint64(), []*types.Header{header})
		})
		if err == nil {
			notifier.NotifyEvent(sub.ID, ev)
		}
	})
	return sub, nil
}

// Logs sends a notification for each new or removed log that matches crit.
func (api *FilterAPI) Logs(ctx context.Context, crit FilterCriteria) (*rpc.Subscription, error) {
	notifier, ok := boundedNotifier(ctx)
	if !ok {
		return api.logsUnguarded(ctx, crit)
	}
	matched := make(chan []*types.Log)
	sub := notifier.CreateSubscription()
	source, err := api.events.SubscribeLogs(ethereum.FilterQuery(crit), matched)
	if err != nil {
		return nil, err
	}
	go forward(sub, source, matched, func(logs []*types.Log) {
		if ev, err := api.guard().logEvents.get(logs); err == nil {
			notifier.NotifyEvent(sub.ID, ev)
		}
	})
	return sub, nil
}

// NewPendingTransactions sends a notification for each transaction that enters the
// pool: its hash, or all of it if fullTx is true.
func (api *FilterAPI) NewPendingTransactions(ctx context.Context, fullTx *bool) (*rpc.Subscription, error) {
	notifier, ok := boundedNotifier(ctx)
	if !ok {
		return api.newPendingTransactionsUnguarded(ctx, fullTx)
	}
	var (
		sub    = notifier.CreateSubscription()
		txs    = make(chan []*types.Transaction, 128)
		source = api.events.SubscribePendingTxs(txs)
		full   = fullTx != nil && *fullTx
		config = api.sys.backend.ChainConfig()
	)
	go forward(sub, source, txs, func(txs []*types.Transaction) {
		if len(txs) == 0 {
			return
		}
		var (
			ev  *rpc.Event
			err error
			key = txKey{first: txs[0], n: len(txs)}
		)
		if full {
			// What is sent of a transaction depends on the head it is seen from.
			head := api.sys.backend.CurrentHeader()
			if head != nil {
				key.head = head.Hash()
			}
			ev, err = api.guard().txEvents.get(key, func() (*rpc.Event, error) {
				full := make([]*ethapi.RPCTransaction, len(txs))
				for i, tx := range txs {
					full[i] = ethapi.NewRPCPendingTransaction(tx, head, config)
				}
				return encodeEvent(0, full)
			})
		} else {
			key.hashes = true
			ev, err = api.guard().txEvents.get(key, func() (*rpc.Event, error) {
				hashes := make([]common.Hash, len(txs))
				for i, tx := range txs {
					hashes[i] = tx.Hash()
				}
				return encodeEvent(0, hashes)
			})
		}
		if err == nil {
			notifier.NotifyEvent(sub.ID, ev)
		}
	})
	return sub, nil
}

func boundedNotifier(ctx context.Context) (*rpc.Notifier, bool) {
	notifier, ok := rpc.NotifierFromContext(ctx)
	return notifier, ok && notifier.Bounded()
}

// forward hands what source delivers to send, which does not wait, until the
// subscription ends: unsubscribed by its client, dropped, or with its connection.
func forward[E any](sub *rpc.Subscription, source *Subscription, events <-chan E, send func(E)) {
	defer source.Unsubscribe()
	for {
		select {
		case ev := <-events:
			send(ev)
		case <-sub.Err():
			return
		}
	}
}

// encodeEvent makes one event of values.
func encodeEvent[E any](block uint64, values []E) (*rpc.Event, error) {
	results := make([]json.RawMessage, len(values))
	for i := range values {
		result, err := rpc.EncodeResult(values[i])
		if err != nil {
			return nil, err
		}
		results[i] = slices.Clip(result)
	}
	return rpc.NewEvent(block, results), nil
}
