// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"
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

// errorCode is the code of a message's error, 0 if it has none.
func (msg *jsonrpcMessage) errorCode() int {
	if msg.Error == nil {
		return 0
	}
	return msg.Error.Code
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

// limitReads sets the limit on the connection, too: before the field there was a
// constant, and in bsc an argument of the handler comes before it. Nothing is read
// before the guard has seen the codec.
func (c *websocketCodec) limitReads(n int64) { c.conn.SetReadLimit(n) }

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

// callback returns the method that a call names, nil if there is none. (The
// registry's own function returns two things more in v1.17.0 to v1.17.3.)
func (h *handler) callback(method string) *callback {
	service, name, _ := strings.Cut(method, serviceMethodSeparator)
	h.reg.mu.Lock()
	defer h.reg.mu.Unlock()
	return h.reg.services[service].callbacks[name]
}

// inBatch reports whether the call is part of a batch. These releases do not tell,
// but add up the lengths of a batch's results, which have to be whole for it.
func (cp *callProc) inBatch(msg *jsonrpcMessage) bool {
	if m := messageOf(cp.ctx); m != nil && m.request != nil {
		return m.request.frame.batch
	}
	return msg.guard == ofBatch
}

// ofBatch marks the entries of a batch from when they are read until they run.
var ofBatch = new(callScope)

func markBatch(msgs []*jsonrpcMessage) {
	for _, msg := range msgs {
		msg.guard = ofBatch
	}
}

// A codec writes any value: messages, batches and, from Notifier, notifications.

func (c *guardCodec) writeJSON(ctx context.Context, v interface{}, isError bool) error {
	releaseMessage(ctx, isError)
	switch v := v.(type) {
	case *jsonrpcMessage:
		fillRefusals(v)
		if c.out != nil {
			return c.out.writeReply(v, nil)
		}
	case []*jsonrpcMessage:
		fillRefusals(v...)
		countCutShort(ctx, v, isError)
		if c.out != nil {
			return c.out.writeReply(nil, append([]*jsonrpcMessage{}, v...))
		}
	}
	return c.ServerCodec.writeJSON(ctx, v, isError)
}

func (c *httpReplyConn) writeJSON(ctx context.Context, v interface{}, isError bool) error {
	switch v := v.(type) {
	case *jsonrpcMessage:
		fillRefusals(v)
		return c.send(ctx, v, nil, isError)
	case []*jsonrpcMessage:
		fillRefusals(v...)
		c.scope.setStatus(0) // a refused entry of a batch is an ordinary entry
		countCutShort(ctx, v, isError)
		return c.send(ctx, nil, v, isError)
	}
	return c.jsonWriter.writeJSON(ctx, v, isError)
}

// beginWriteSpan does nothing: writing a reply is traced from v1.17.4 on.
func beginWriteSpan(context.Context) func(*error) { return func(*error) {} }
