// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"encoding/json"
)

// notificationOverhead is what one notification is charged besides its result, in
// bytes: the envelope around the result on the wire and the bookkeeping in memory.
const notificationOverhead = 128

// Event is what a node produced in one step for its subscribers, encoded: the logs
// of one block, the transactions of one pool announcement, one header. It turns
// into one notification per result.
//
// One Event can be queued for any number of subscriptions; it is encoded once and
// the queues share the bytes. It must not be changed after it was made, neither by
// its maker nor by anything that delivers it. Its results own their memory: none of
// them is a part of a larger buffer, so that a queue which keeps an event alive
// keeps exactly the bytes that it is charged for.
//
// Example: a block with 100 logs of 600 bytes each, 1000 subscribers. The results
// are encoded 100 times, not 100000 times, and take 60 kB however many queues hold
// the event. Each queue is charged 100 * (600 + 128) = 72800 bytes for it, as if
// the event were its own, because a queue cannot know who else will keep it.
type Event struct {
	results []json.RawMessage
	block   uint64
	size    int64
}

// NewEvent returns the event that consists of results, in this order. Each result
// must be what EncodeResult returned. block is the number of the block that the
// event belongs to, which the client of a dropped subscription is told so that it
// can fetch what it missed; 0 means none.
func NewEvent(block uint64, results []json.RawMessage) *Event {
	ev := &Event{results: results, block: block}
	for _, result := range results {
		ev.size += int64(cap(result)) + notificationOverhead
	}
	return ev
}

// Size returns the bytes that a queue is charged for the event.
func (ev *Event) Size() int64 { return ev.size }

// EncodeResult encodes one value as the "result" of a notification, byte for byte
// as Notifier.Notify does.
func EncodeResult(v any) (json.RawMessage, error) {
	return json.Marshal(v)
}

// appendNotificationHead appends all of a notification that stands before its
// result. The head depends on the subscription only, so an event of many
// notifications builds it once.
func appendNotificationHead(buf []byte, namespace string, id ID) []byte {
	buf = appendMessage(buf, &jsonrpcMessage{Version: vsn, Method: namespace + notificationMethodSuffix})
	buf = buf[:len(buf)-1] // the closing brace, which belongs behind the result
	buf = append(buf, `,"params":{"subscription":`...)
	quoted, _ := json.Marshal(string(id)) // a string always encodes
	buf = append(buf, quoted...)
	return append(buf, `,"result":`...)
}

// notificationTail is what follows the result.
const notificationTail = "}}"

// appendErrorNotification appends the message that ends a subscription on a
// connection that stays: an error stands in place of the result.
func appendErrorNotification(buf []byte, namespace string, id ID, jerr *jsonError) []byte {
	params, err := json.Marshal(struct {
		ID    string     `json:"subscription"`
		Error *jsonError `json:"error"`
	}{string(id), jerr})
	if err != nil {
		panic("rpc: drop report does not encode: " + err.Error())
	}
	return appendMessage(buf, &jsonrpcMessage{Version: vsn, Method: namespace + notificationMethodSuffix, Params: params})
}

// appendLargeMessage appends msg without its result, for a result that is better
// written from where it lies than copied: the message is head, result, tail.
func appendLargeMessage(buf []byte, msg *jsonrpcMessage) (head []byte, tail string) {
	rest := *msg
	rest.Result = nil
	buf = appendMessage(buf, &rest)
	buf = buf[:len(buf)-1]
	return append(buf, `,"result":`...), "}"
}
