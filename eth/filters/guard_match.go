// SPDX-License-Identifier: LGPL-3.0-or-later

package filters

import (
	"math/big"
	"slices"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
)

// longList is the length from which on a list of addresses or topics is worth a
// look at the logs first.
const longList = 16

// filterLogs stands in front of upstream's function of that name and returns what
// it returns.
//
// Upstream compares every log with every address and topic in turn, and does so for
// all subscriptions and polling filters in the one goroutine that hands out heads
// and transactions as well: 1000 subscriptions to 1000 addresses each, the most that
// recent releases take in one query, are 2*10^9 comparisons for a block of 2000 logs,
// some seconds in which nobody hears of the block. Here the elements of a long list
// are looked up in what occurs in the logs, which costs one look-up an element,
// whatever the number of logs: 10^6 for the same block. Logs without one of them are
// left out, and upstream sees an empty list, which fits the others.
func filterLogs(logs []*types.Log, fromBlock, toBlock *big.Int, addresses []common.Address, topics [][]common.Hash) []*types.Log {
	if len(addresses) > longList {
		logs = among(logs, addresses, func(log *types.Log) (common.Address, bool) { return log.Address, true })
		addresses = nil
	}
	own := false
	for i, list := range topics {
		if len(list) <= longList {
			continue
		}
		logs = among(logs, list, func(log *types.Log) (topic common.Hash, ok bool) {
			if i < len(log.Topics) {
				return log.Topics[i], true
			}
			return topic, false
		})
		if !own {
			topics, own = slices.Clone(topics), true // the query is its owner's
		}
		topics[i] = nil
	}
	return filterLogsUnguarded(logs, fromBlock, toBlock, addresses, topics)
}

// among returns the logs for which of returns an element of list, in order.
func among[E comparable](logs []*types.Log, list []E, of func(*types.Log) (E, bool)) []*types.Log {
	wanted := make(map[E]bool) // mostly few: a block's logs come from few contracts
	for _, log := range logs {
		if e, ok := of(log); ok {
			wanted[e] = false
		}
	}
	found := false
	for _, e := range list {
		if _, ok := wanted[e]; ok {
			wanted[e], found = true, true
		}
	}
	if !found {
		return nil
	}
	var some []*types.Log
	for _, log := range logs {
		if e, ok := of(log); ok && wanted[e] {
			some = append(some, log)
		}
	}
	return some
}
