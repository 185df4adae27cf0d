// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/log"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
)

// A single call of the usual form takes a short way. Upstream makes for each HTTP request
// a codec and a handler with all that a connection with subscriptions needs, runs the call
// in a goroutine of its own, and for each call, on any transport, names of spans, attributes
// and log arguments that nobody sees: two thirds of the allocations of a small call.
//
// # Model
//
// A message takes the short way if nobody could tell: it is one call (no batch, no
// notification, no subscription) of a method that exists, in the plain form of
// parseMessage, over HTTP with the usual header, while nothing is traced and debug messages
// are not written. Whatever else there is goes through upstream, which also says what is
// wrong with it. Admission, permits, budgets and books are those of every call: the short
// way ends in handleCall, as upstream's does.
//
// # Invariants
//
//   - A reply is written once: by the goroutine of the call, or by the timer when its time
//     is up. Neither leaves while the other writes, so nothing is written after the
//     request has ended.
//   - The method's context ends with its client, with its time, and when the call is over.
//   - What is logged of a call that fails is what upstream logs.
//
// directCall is what an HTTP request needs for it.
type directCall struct {
	request *http.Request // nil: it goes the long way
	h       handler       // what of upstream's handler a call needs
	msg     jsonrpcMessage
}

// answerOnce is who may write the reply of a message.
type answerOnce struct {
	mu   sync.Mutex
	done bool
}

// jsonHeader is the value of a header, which nobody changes.
var jsonHeader = []string{contentType}

// serveDirectly serves a request whose body was read, if it may take the short way, and
// reports whether it did. If not nothing has happened.
func (g *Guard) serveDirectly(s *Server, scope *requestScope, r *http.Request) bool {
	frame := &scope.frame
	if !g.untrusted() || !frame.read || frame.err != nil || frame.batch || len(frame.text) > budgetStep {
		return false
	}
	if ct := r.Header["Content-Type"]; r.Method != http.MethodPost || len(ct) != 1 || ct[0] != contentType || !s.run.Load() || s.tracerProvider != nil {
		return false
	}
	ctx := otel.GetTextMapPropagator().Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	if root := log.Root(); !tracesNothing(ctx) || root.Enabled(ctx, log.LevelDebug) || !json.Valid(frame.text) {
		return false
	}
	m, d := &scope.message, &scope.direct
	d.h.reg, d.h.conn = &s.services, &scope.conn
	p := plainParser{data: frame.text}
	if p.space(); !p.message(&d.msg) || !p.atEnd() || !d.h.isDirect(&d.msg) {
		d.msg = jsonrpcMessage{}
		return false
	}
	frame.text = nil
	scope.writer.Header()["Content-Type"] = jsonHeader

	m.g, m.key, m.request = scope.g, scope.key, scope
	m.Context, m.quiet = ctx, true
	d.request = r
	defer m.releaseReplies()
	ctx, cancel := context.WithCancel(m)
	defer cancel()
	m.cp.ctx = ctx
	m.runDirectly(&d.h, &m.cp, &d.msg, cancel)
	return true
}

// isDirect reports whether a message is a call that may take the short way.
func (h *handler) isDirect(msg *jsonrpcMessage) bool {
	return msg.isCall() && !msg.isNotification() && !isOversized(msg.ID) && len(msg.Method) <= maxMethodNameLength &&
		!msg.isSubscribe() && !msg.isUnsubscribe() && h.callback(msg.Method) != nil
}

// handleNonBatchCall stands in front of upstream's function of that name.
func (h *handler) handleNonBatchCall(cp *callProc, msg *jsonrpcMessage) {
	m, ok := cp.ctx.(*messageScope)
	if !ok || !m.quiet || !m.g.untrusted() || !h.isDirect(msg) {
		h.handleNonBatchCallUnguarded(cp, msg)
		return
	}
	var cancel context.CancelFunc
	if _, limited := ContextRequestTimeout(m); limited {
		cp.ctx, cancel = context.WithCancel(m)
		defer cancel()
	}
	m.runDirectly(h, cp, msg, cancel)
}

// runDirectly serves a call and answers it. cancel ends the context of cp; it may be nil
// if the call has all the time it likes.
func (m *messageScope) runDirectly(h *handler, cp *callProc, msg *jsonrpcMessage, cancel context.CancelFunc) {
	if timeout, limited := ContextRequestTimeout(cp.ctx); limited {
		timer := time.AfterFunc(timeout, func() {
			cancel()
			m.answer(h, msg.errorResponse(&internalServerError{errcodeTimeout, errMsgTimeout}), true)
		})
		defer timer.Stop() // one that fires now finds the call answered
	}
	m.answer(h, m.callQuietly(h, cp, msg), false)
}

// handleEntry stands in front of upstream's handleCallMsg for the entries of a batch. The
// arguments of what is logged of a call that went well are five allocations, and nobody
// sees them.
func (h *handler) handleEntry(cp *callProc, msg *jsonrpcMessage) *jsonrpcMessage {
	m := messageOf(cp.ctx)
	if m == nil || !m.quiet || !msg.isCall() || msg.isNotification() {
		return h.handleCallMsg(cp, msg)
	}
	return m.callQuietly(h, cp, msg)
}

// callQuietly runs a call and logs no more of it than that it has failed.
func (m *messageScope) callQuietly(h *handler, cp *callProc, msg *jsonrpcMessage) *jsonrpcMessage {
	start := time.Now()
	resp := h.handleCall(cp, msg)
	if resp.Error != nil {
		m.logFailure(h, msg, resp, time.Since(start))
	}
	return resp
}

// answer writes the reply, unless there was one.
func (m *messageScope) answer(h *handler, resp *jsonrpcMessage, isError bool) {
	m.once.mu.Lock()
	defer m.once.mu.Unlock()
	if !m.once.done {
		m.once.done = true
		h.conn.writeJSON(m, resp, isError)
	}
}

// logFailure says what upstream says of a call that has failed.
func (m *messageScope) logFailure(h *handler, msg, resp *jsonrpcMessage, took time.Duration) {
	logger := h.log
	if logger == nil {
		logger = log.Root().New("conn", m.request.direct.request.RemoteAddr)
	}
	failure := resp.decodeError()
	args := []any{"reqid", idForLog{msg.ID}, "duration", took, "err", failure.Message}
	if failure.Data != nil {
		args = append(args, "errdata", formatErrorData(failure.Data))
	}
	logger.Warn("Served "+msg.Method, args...)
}

// peerInfo is what PeerInfoFromContext tells of the request.
func (d *directCall) peerInfo() PeerInfo {
	info := PeerInfo{Transport: "http", RemoteAddr: d.request.RemoteAddr}
	info.HTTP.Version, info.HTTP.Host = d.request.Proto, d.request.Host
	info.HTTP.Origin, info.HTTP.UserAgent = d.request.Header.Get("Origin"), d.request.Header.Get("User-Agent")
	return info
}

// runCallback parses the arguments of a call and calls its method.
func (h *handler) runCallback(cp *callProc, msg *jsonrpcMessage) *jsonrpcMessage {
	var cb *callback
	if s := msg.guard; s != nil && s.message != nil && s.message.quiet && !msg.isSubscribe() && !msg.isUnsubscribe() {
		cb = h.callback(msg.Method)
	}
	if cb == nil {
		return h.handleCallUnguarded(cp, msg)
	}
	args, err := parsePositionalArguments(msg.Params, cb.argTypes)
	if err != nil {
		return msg.errorResponse(&invalidParamsError{err.Error()})
	}
	start := time.Now()
	var resp *jsonrpcMessage
	if result, err := cb.call(cp.ctx, msg.Method, args); err != nil {
		resp = msg.errorResponse(err)
	} else {
		resp = msg.response(result)
	}
	took := time.Since(start)
	rpcRequestGauge.Inc(1)
	if resp.Error == nil {
		successfulRequestGauge.Inc(1)
	} else {
		failedRequestGauge.Inc(1)
	}
	rpcServingTimer.Update(took)
	observeServeTime(msg.Method, resp.Error == nil, took)
	return resp
}
