// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import "github.com/ethereum/go-ethereum/common/hexutil"

// dropReason says why a subscription was torn down. The values are fixed, because
// metrics are named after them.
type dropReason string

const (
	dropEvents    dropReason = "events"    // more events wait than one subscription may have
	dropBytes     dropReason = "bytes"     // more bytes wait than one subscription may have
	dropConnBytes dropReason = "connbytes" // more bytes wait than the connection may have
	dropTooLarge  dropReason = "toolarge"  // one result is larger than any result may be
	dropWrite     dropReason = "write"     // writing to the client failed
	dropDisplaced dropReason = "displaced" // another client needs its place
)

// dropReasons lists all of them.
var dropReasons = []dropReason{dropEvents, dropBytes, dropConnBytes, dropTooLarge, dropWrite, dropDisplaced}

// dropReport describes a drop: to the operator in the log, to the client as the
// data of the error that ends its subscription.
type dropReport struct {
	Reason    dropReason
	Queued    int64  // what waited: events or bytes, whichever limit was met
	Limit     int64  // the limit that was met
	LastBlock uint64 // of the last event that was written whole; 0: unknown
}

// errcodeSubscriptionDropped is the code of the error that ends a subscription
// whose client did not keep up.
const errcodeSubscriptionDropped = -32014

// dropNotice returns the message that tells the client of a drop.
func (s *clientNotifier) dropNotice(report dropReport) []byte {
	data := struct {
		Reason    dropReason      `json:"reason"`
		Queued    int64           `json:"queued"`
		Limit     int64           `json:"limit"`
		LastBlock *hexutil.Uint64 `json:"lastBlock"`
	}{report.Reason, report.Queued, report.Limit, nil}
	if report.LastBlock > 0 {
		data.LastBlock = (*hexutil.Uint64)(&report.LastBlock)
	}
	return appendErrorNotification(nil, s.namespace, s.id, &jsonError{
		Code:    errcodeSubscriptionDropped,
		Message: "subscription dropped: slow consumer",
		Data:    data,
	})
}
