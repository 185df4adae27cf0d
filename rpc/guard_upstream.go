// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"

	"github.com/ethereum/go-ethereum/internal/telemetry"
)

// What upstream's releases spell differently, in one place: a base for older
// ones (patches/bases) has its own variant of this file, so that no other file
// needs one.

// errorSize is the number of bytes that a message's error holds. From v1.17.4 on
// an error is encoded when the message is made.
func (msg *jsonrpcMessage) errorSize() int { return len(msg.Error) }

// errorCode is the code of a message's error, 0 if it has none.
func (msg *jsonrpcMessage) errorCode() int {
	if e := msg.decodeError(); e != nil {
		return e.Code
	}
	return 0
}

// readLimit is the largest WebSocket message that the server reads, in bytes.
// The field came with v1.16.3.
func (s *Server) readLimit() int64 { return s.wsReadLimit }

func (s *Server) setReadLimit(n int64) { s.wsReadLimit = n }

// limitReads does nothing: the codec was made with the server's limit.
func (c *websocketCodec) limitReads(int64) {}

// setRefusal makes msg a refusal.
func (msg *jsonrpcMessage) setRefusal(e *refusalError) { msg.Error = e.encoded }

// callback returns the method that a call names, nil if there is none.
func (h *handler) callback(method string) *callback { return h.reg.callback(method) }

// inBatch reports whether the call is part of a batch.
func (cp *callProc) inBatch(*jsonrpcMessage) bool { return cp.isBatch }

// markBatch does nothing: upstream tells which calls are part of a batch.
func markBatch([]*jsonrpcMessage) {}

// A codec writes messages, one or a batch. Up to v1.17.3 it writes any value.

func (c *guardCodec) writeJSON(ctx context.Context, msg *jsonrpcMessage, isError bool) error {
	releaseMessage(ctx, isError)
	fillRefusals(msg)
	if c.out == nil {
		return c.ServerCodec.writeJSON(ctx, msg, isError)
	}
	return c.out.writeReply(msg, nil)
}

func (c *guardCodec) writeJSONBatch(ctx context.Context, msgs []*jsonrpcMessage, isError bool) error {
	releaseMessage(ctx, isError)
	fillRefusals(msgs...)
	countCutShort(ctx, msgs, isError)
	if c.out == nil {
		return c.ServerCodec.writeJSONBatch(ctx, msgs, isError)
	}
	if msgs == nil {
		msgs = []*jsonrpcMessage{}
	}
	return c.out.writeReply(nil, msgs)
}

func (c *httpReplyConn) writeJSON(ctx context.Context, msg *jsonrpcMessage, isError bool) error {
	fillRefusals(msg)
	return c.send(ctx, msg, nil, isError)
}

func (c *httpReplyConn) writeJSONBatch(ctx context.Context, msgs []*jsonrpcMessage, isError bool) error {
	fillRefusals(msgs...)
	countCutShort(ctx, msgs, isError)
	return c.send(ctx, nil, msgs, isError)
}

// beginWriteSpan begins the span that upstream traces the writing of an HTTP reply by.
// It came with v1.17.4.
func beginWriteSpan(ctx context.Context) func(*error) {
	_, _, end := telemetry.StartSpanWithTracer(ctx, telemetry.TracerFromContext(ctx), "rpc.httpWrite")
	return end
}
