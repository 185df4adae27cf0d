// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"encoding/json"
	"reflect"
)

// What upstream's releases spell differently, in one place. This is the variant
// for releases up to v1.17.3 and the forks that stand on them.

// errorSize is about the number of bytes that a message's error will take. Up to
// v1.17.3 it is encoded together with the message, when that is written.
func (msg *jsonrpcMessage) errorSize() int {
	if msg.Error == nil {
		return 0
	}
	const envelope = 32 // code, names and punctuation
	size := envelope + len(msg.Error.Message)
	if msg.Error.Data != nil {
		if data, err := json.Marshal(msg.Error.Data); err == nil {
			size += len(data)
		}
	}
	return size
}

// readLimit is the largest WebSocket message that the server reads, in bytes.
// The field came with v1.16.3; before, the limit was a constant.
func (s *Server) readLimit() int64 {
	if f := reflect.ValueOf(s).Elem().FieldByName("wsReadLimit"); f.IsValid() {
		return f.Int()
	}
	return wsDefaultReadLimit
}

func (s *Server) setReadLimit(n int64) {
	if f := reflect.ValueOf(s).Elem().FieldByName("wsReadLimit"); f.IsValid() {
		*(*int64)(f.Addr().UnsafePointer()) = n
	}
}

// cutBatches has the codec drop the elements of a batch beyond limit+1 before they
// are built. Up to v1.17.5 every message is decoded into its raw form first.
func (c *jsonCodec) cutBatches(limit int) {
	decode := c.decode
	c.decode = func(v interface{}) error {
		err := decode(v)
		if raw, ok := v.(*json.RawMessage); ok {
			*raw = cutBatch(*raw, limit)
		}
		return err
	}
}

// appendMessage appends the encoding of a message. Releases up to v1.17.3 have
// no function for it: they encode at the moment of writing.
func appendMessage(buf []byte, msg *jsonrpcMessage) []byte {
	enc, err := json.Marshal(msg)
	if err != nil {
		// Only the data of an error can fail to encode; upstream drops the whole
		// message then, and its caller waits for ever.
		enc, _ = json.Marshal(msg.errorResponse(&internalServerError{errcodeMarshalError, err.Error()}))
	}
	return append(buf, enc...)
}

// setRefusal makes msg a refusal.
func (msg *jsonrpcMessage) setRefusal(e *refusalError) { msg.Error = e.decoded }
