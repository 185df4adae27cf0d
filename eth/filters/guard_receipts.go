// SPDX-License-Identifier: LGPL-3.0-or-later

package filters

import (
	"context"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/internal/ethapi"
	"github.com/ethereum/go-ethereum/rpc"
)

// receiptGroups holds what subscribers to receipts share, by FilterAPI. It is here and
// not with what others share because releases before v1.16.5 have no such
// subscription: they go without this file.
var receiptGroups perAPI[feedGroups[[]*ReceiptWithTx]]

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
	key := "" // who names transactions names his own
	if len(hashes) == 0 {
		key = "all"
	}
	sub := notifier.CreateSubscription()
	err := receiptGroups.of(api).join(key, notifier, sub,
		func(receipts chan []*ReceiptWithTx) (*Subscription, error) {
			return api.events.SubscribeTransactionReceipts(hashes, receipts), nil
		}, api.encodeReceipts)
	return sub, err
}

// encodeReceipts makes the event of the receipts of one block.
func (api *FilterAPI) encodeReceipts(receipts []*ReceiptWithTx) (*rpc.Event, error) {
	if len(receipts) == 0 {
		return rpc.NewEvent(0, nil), nil
	}
	var (
		signer = types.LatestSigner(api.sys.backend.ChainConfig())
		list   = make([]map[string]any, len(receipts))
	)
	for i, r := range receipts {
		number := r.Receipt.BlockNumber.Uint64()
		list[i] = ethapi.MarshalReceipt(r.Receipt, r.Receipt.BlockHash, number, signer, r.Transaction, int(r.Receipt.TransactionIndex))
	}
	return encodeEvent(receipts[0].Receipt.BlockNumber.Uint64(), []any{list})
}
