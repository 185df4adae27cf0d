// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"encoding/json"

	"github.com/ethereum/go-ethereum/common/mclock"
)

// maxIDLength is the longest id in bytes that a call may have. It is logged, traced
// and echoed.
const maxIDLength = 1 << 10

// oversizedID stands in place of an id that is too long. It is told by its address
// from a null that the client sent.
var oversizedID = json.RawMessage("null")

func isOversized(id json.RawMessage) bool {
	return len(id) > maxIDLength || len(id) > 0 && &id[0] == &oversizedID[0]
}

// boundsIDs reports whether the ids of this view's clients may not be too long. A dry run
// refuses nothing.
func (g *Guard) boundsIDs() bool { return g.enforces() }

// hideOversizedIDs keeps ids that are too long out of the replies to an HTTP request.
// Those of calls were replaced before; but what is no valid call is answered with its id
// as well, and so is what upstream answers without calling it, such as the rest of a
// batch whose time is up. On streams they are replaced when they are read.
func hideOversizedIDs(msgs ...*jsonrpcMessage) {
	for _, msg := range msgs {
		if len(msg.ID) > maxIDLength {
			msg.ID = oversizedID
		}
	}
}

// startCallProc stands in front of upstream's function of that name: fn serves
// one message, a batch being one.
func (h *handler) startCallProc(fn func(*callProc)) {
	m := h.messageScope()
	if m == nil {
		h.startCallProcUnguarded(fn)
		return
	}
	if m.request != nil {
		m.request.endParse()
	}
	if m.conn != nil {
		m.body.Store(m.conn.bodies.pop())
	}
	if m.conn != nil && m.conn.server != nil {
		h.callWG.Add(1)
		m.g.workers.run(streamWork{h, m, fn})
		return
	}
	h.startCallProcUnguarded(func(cp *callProc) { m.serve(h, cp, fn) })
}

// serve serves the message with fn, in the context of cp.
func (m *messageScope) serve(h *handler, cp *callProc, fn func(*callProc)) {
	defer m.releaseBody()
	if m.conn != nil {
		defer m.conn.callDone()
	}
	defer m.releaseReplies()
	m.Context, m.quiet = cp.ctx, h.quiet(cp.ctx)
	cp.ctx = m
	fn(cp)
	for _, n := range cp.notifiers {
		n.activateQueue()
	}
}

// handleCall stands in front of upstream's function of that name. It is reached
// by single calls, batch entries, notifications, subscribe and unsubscribe, before
// their arguments are parsed. A permit is held until the method has returned and
// its result is encoded, and given back before anything is written.
func (h *handler) handleCall(cp *callProc, msg *jsonrpcMessage) *jsonrpcMessage {
	m := messageOf(cp.ctx)
	switch {
	case m == nil:
		return h.runCall(cp, msg)
	case m.g.boundsIDs() && isOversized(msg.ID):
		msg.ID = oversizedID
		return errorMessage(&invalidRequestError{"id too long"})
	case !h.knows(msg):
		// Refused as upstream does it, and nothing of it is remembered.
		return h.runCall(cp, msg)
	case !m.g.untrusted():
		return m.handleTrusted(h, cp, msg)
	}
	return m.handleCall(h, cp, msg)
}

// knows reports whether a call names a method or subscription that h serves.
func (h *handler) knows(msg *jsonrpcMessage) bool {
	switch {
	case len(msg.Method) > maxMethodNameLength:
		return false
	case msg.isUnsubscribe():
		return true
	case msg.isSubscribe():
		if !h.allowSubscribe {
			return false
		}
		name, err := parseSubscriptionName(msg.Params)
		return err == nil && h.reg.subscription(msg.namespace(), name) != nil
	default:
		return h.callback(msg.Method) != nil
	}
}

// handleCall admits a call of an untrusted client and runs it.
func (m *messageScope) handleCall(h *handler, cp *callProc, msg *jsonrpcMessage) *jsonrpcMessage {
	a := m.g.admission
	if sleeps(msg.Method) {
		msg.Params = capSleep(msg.Params, m.g.cfg.Admission.HeavyTimeout)
	}
	s := m.newCall()
	s.class = a.classes.classify(msg.Method, msg.Params)
	var expected replyExpectation
	if s.class != classLight {
		expected = m.g.replies.expect(msg)
	}
	if s.class == classNormal && expected.muchWork() {
		s.class = classCompute
	}
	why := m.admit(cp, msg, s)
	if why != admitted {
		if m.request != nil && !cp.inBatch(msg) {
			m.request.setStatus(a.status)
		}
		return a.refusedReply(msg)
	}
	if refused := m.reserveReply(msg, s, expected); refused != nil {
		if m.request != nil && !cp.inBatch(msg) {
			m.request.setStatus(a.status)
		}
		return refused
	}
	s.Context, s.batch = cp.ctx, cp.inBatch(msg)
	msg.guard, m.begun, m.spare = s, true, nil
	m.executing.Store(!msg.isNotification())
	defer m.executing.Store(false)
	s.holders.Store(1)
	s.ended.Store(uint32(outcomeFailed)) // unless the call returns
	defer s.release()

	outer := cp.ctx
	cp.ctx = s
	if s.class == classHeavy {
		s.worker = make(chan struct{}, 1)
		stoppable, stop := stopOnCancel(cp.ctx)
		defer stop()
		cp.ctx = stoppable
		if s.meter != nil {
			s.meter.stop = stop
		}
	}
	resp := h.runCall(cp, msg)
	cp.ctx = outer
	if resp.Error != nil {
		resp = s.chargeError(msg, resp)
	}
	s.ended.Store(uint32(m.outcomeOf(cp, resp)))
	return resp
}

// admit asks the gate for the permits of a call.
func (m *messageScope) admit(cp *callProc, msg *jsonrpcMessage, s *callScope) (why refusal) {
	g := m.g.admission.gate
	if m.Err() != nil {
		// The client has left: what it pipelined must not run.
		g.books[s.class].arrived.Add(1)
		why = whyDone(m)
		g.books[s.class].refuse(why)
		return why
	}
	now := mclock.AbsTime(0)
	if s.class != classLight {
		now = g.clock.Now()
		if m.bound == 0 {
			left, _ := ContextRequestTimeout(cp.ctx)
			m.bound = g.waitBound(now, left)
		}
	}
	s.permit = gateCall{class: s.class, key: m.key, method: msg.Method, since: now, bound: m.bound}
	why = g.acquire(cp.ctx, &s.permit)
	if why == admitted && s.permit.waited > 0 {
		admissionWaitTimer.Update(s.permit.waited)
	}
	return why
}

// outcomeOf says how a call ended, from what its client has seen or will see.
func (m *messageScope) outcomeOf(cp *callProc, resp *jsonrpcMessage) outcome {
	switch {
	case m.Err() != nil:
		return outcomeCancelled
	case cp.ctx.Err() != nil: // its time was up, and the client was told so
		return outcomeFailed
	case resp != nil && resp.Error != nil:
		return outcomeFailed
	}
	return outcomeServed
}

// handleTrusted runs a call that is counted and nothing else.
func (m *messageScope) handleTrusted(h *handler, cp *callProc, msg *jsonrpcMessage) *jsonrpcMessage {
	book := &m.g.admission.trusted
	book.arrived.Add(1)
	how := outcomeFailed // unless the call returns
	defer func() { book.end(how) }()
	resp := h.runCall(cp, msg)
	how = m.outcomeOf(cp, resp)
	return resp
}
