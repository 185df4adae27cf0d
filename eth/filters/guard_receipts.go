// SPDX-License-Identifier: LGPL-3.0-or-later

package filters

import (
	"context"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/internal/ethapi"
	"github.com/ethereum/go-ethereum/rpc"
)

// TransactionReceipts sends the receipts of each block's transactions, those that
// filter names or all of them, as one notification.
func (api *FilterAPI) TransactionReceipts(ctx context.Context, filter *TransactionReceiptsQuery) (*rpc.Subscription, error) {
	notifier, ok := boundedNotifier(ctx)
	if !ok {
		return api.transactionReceiptsUnguarded(ctx, filter)
	}
	var hashes []common.Hash
	if filter != nil {
		hashes = filter.TransactionHashes
	}
	if len(hashes) > maxTxHashes {
		return nil, errExceedMaxTxHashes
	}
	var (
		sub     = notifier.CreateSubscription()
		matched = make(chan []*ReceiptWithTx)
		source  = api.events.SubscribeTransactionReceipts(hashes, matched)
		signer  = types.LatestSigner(api.sys.backend.ChainConfig())
	)
	go forward(sub, source, matched, func(receipts []*ReceiptWithTx) {
		if len(receipts) == 0 {
			return
		}
		var key any // shared by those who get all receipts of a block
		if len(hashes) == 0 {
			key = receiptKey{receipts[0].Receipt, len(receipts)}
		}
		ev, err := api.guard().receiptEvents.get(key, func() (*rpc.Event, error) {
			list := make([]map[string]any, len(receipts))
			for i, r := range receipts {
				number := r.Receipt.BlockNumber.Uint64()
				list[i] = ethapi.MarshalReceipt(r.Receipt, r.Receipt.BlockHash, number, signer, r.Transaction, int(r.Receipt.TransactionIndex))
			}
			return encodeEvent(receipts[0].Receipt.BlockNumber.Uint64(), []any{list})
		})
		if err == nil {
			notifier.NotifyEvent(sub.ID, ev)
		}
	})
	return sub, nil
}
