// SPDX-License-Identifier: LGPL-3.0-or-later

package filters

import (
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
)

// Sizes in bytes of what waits in a filter, or was found by a query. Transactions and logs
// are shared with other filters, with the pool and with caches, but any may be the last to
// hold them: a log's data keeps the cached logs of a whole block alive at worst.
const (
	hashSize = common.HashLength
	logSize  = 256 // without topics and data
	txSize   = 256 // without its encoding
)

func txsSize(txs []*types.Transaction) (size int64) {
	for _, tx := range txs {
		size += txSize + int64(tx.Size())
	}
	return size
}

func logsSize(logs []*types.Log) (size int64) {
	for _, log := range logs {
		size += logSize + int64(len(log.Topics)*common.HashLength+len(log.Data))
	}
	return size
}
