// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"sync/atomic"

	"github.com/ethereum/go-ethereum/common/mclock"
)

// The three scopes say whom a piece of work is done for: an HTTP request, a message
// (a batch being one), a call. The scopes of a message and of a call are themselves the
// contexts that their work runs in, and the first of each lies in the one above it: so
// a request costs one allocation, and looking a scope up costs no step more than a
// context that carries one value. They are never reused, since a method may keep its
// context for as long as it likes.

// messageScope accompanies one message from the goroutine that serves it to its
// reply. It is the context of all its calls; what is embedded ends when the client has
// gone, not when the message's time is up.
type messageScope struct {
	context.Context
	g       *Guard
	key     clientKey
	request *requestScope          // nil on streams
	conn    *guardCodec            // nil over HTTP
	body    atomic.Pointer[charge] // for the message's bytes on streams

	// bound is when waiting for permits ends, for all calls of the message
	// together; 0 until the first of them arrives.
	bound mclock.AbsTime

	replies   *replyCharge // of its calls, given back when it has been answered
	executing atomic.Bool  // one of its calls that wants an answer
	quiet     bool         // nobody traces it or logs what it does
	once      answerOnce   // if it is served without upstream's handler
	cp        callProc     // likewise, or of a worker

	first callScope   // of its first call that runs
	begun bool        // first is in use
	spare *callScope  // of the next call, if one that was refused has left it
	few   []callScope // of the calls after that: a batch makes some at a time
}

// How many scopes a batch makes at a time. They fill the allocator's classes of 2688 and
// 8192 bytes; a method that keeps its context keeps those of its neighbours.
const (
	fewScopes  = 4
	manyScopes = 14
)

type messageScopeKey struct{}

// Value implements context.Context.
func (m *messageScope) Value(key any) any {
	switch key.(type) {
	case messageScopeKey:
		return m
	case peerInfoContextKey:
		if m.request != nil && m.request.direct.request != nil {
			return m.request.direct.peerInfo()
		}
	}
	return m.Context.Value(key)
}

// messageOf returns the scope of the message that ctx belongs to, nil if nothing
// guards it.
func messageOf(ctx context.Context) *messageScope {
	m, _ := ctx.Value(messageScopeKey{}).(*messageScope)
	return m
}

// releaseBody gives the message's bytes back. It may be called more than once.
func (m *messageScope) releaseBody() {
	if m.conn == nil {
		return
	}
	if mem := m.body.Swap(nil); mem != nil {
		mem.close()
		messageCharges.Put(mem) // nobody else knows of it by now
	}
}

// messageScope returns the scope of a message that arrived for h, nil if nothing
// guards it: a client's handler has no guarded connection and no guarded request.
func (h *handler) messageScope() *messageScope {
	switch conn := h.conn.(type) {
	case *guardCodec:
		return &messageScope{g: conn.g, key: conn.key, conn: conn}
	case *httpReplyConn:
		// An HTTP request is one message.
		r := conn.scope
		m := &r.message
		m.g, m.key, m.request = r.g, r.key, r
		return m
	}
	return nil
}

// newCall returns the scope of a call that has arrived. Calls that are refused leave it
// to the next one.
func (m *messageScope) newCall() *callScope {
	switch {
	case m.spare != nil:
	case !m.begun:
		m.spare = &m.first
	default:
		if len(m.few) == 0 {
			n := fewScopes
			if m.few != nil { // used up: it is a long batch
				n = manyScopes
			}
			m.few = make([]callScope, n)
		}
		m.spare, m.few = &m.few[0], m.few[1:]
	}
	m.spare.g, m.spare.message = m.g, m
	return m.spare
}

// callScope accompanies one call from admission to the last byte of its reply.
// The request message carries it, and so does the response made from it. It is the
// context that the method runs in, for what that does in the background; what is
// embedded ends when nobody waits for the call's reply any more.
type callScope struct {
	context.Context
	g       *Guard
	message *messageScope
	class   callClass
	permit  gateCall
	worker  chan struct{} // of a heavy call: held by the worker that may run
	refusal *refusalError // of a refused call; the rest is not used then

	// holders is how many keep the permit: the call, and what it left running.
	holders atomic.Int32
	ended   atomic.Uint32 // outcome, valid once the call is over

	batch  bool         // it is an entry of a batch
	reply  *replyCharge // nil: not charged
	meter  *BuildMeter  // nil: what the method builds is not counted
	chunks [][]byte     // of a response: its result, if that is in pieces

	full []*[replyChunk]byte // those pieces that can be used again

	charged replyCharge // what reply points to
}

type callScopeKey struct{}

// Value implements context.Context.
func (s *callScope) Value(key any) any {
	if _, ok := key.(callScopeKey); ok {
		return s
	}
	return s.Context.Value(key)
}

// hold keeps the permit beyond the return of the method until release is called.
func (s *callScope) hold() { s.holders.Add(1) }

// release drops one hold; the last one gives the permit back.
func (s *callScope) release() {
	switch n := s.holders.Add(-1); {
	case n == 0:
		s.permit.end(outcome(s.ended.Load()))
	case n < 0:
		panic("rpc: call scope released twice")
	}
}

// ContinueCall returns a context for what the call that ctx belongs to goes on doing
// after its method has returned. The call's permit is kept, and what is built is
// counted by a meter of its own (BuildMeterFromContext), until the returned function is
// called, exactly once. The error says that replies as large as this method's do not
// fit at present. Without a guard ctx is returned as it is.
func ContinueCall(ctx context.Context) (context.Context, func(), error) {
	s, ok := ctx.Value(callScopeKey{}).(*callScope)
	if !ok {
		return ctx, func() {}, nil
	}
	rest := &callScope{Context: s.Context, g: s.g, message: s.message, class: s.class, worker: s.worker}
	if s.reply != nil {
		reply, err := s.g.replies.reserveIn(&rest.charged, s.message.key, s.charged.kind)
		if err != nil {
			return nil, nil, err
		}
		if rest.reply = reply; reply != nil {
			rest.meter = &BuildMeter{reply: reply, noJS: s.meter != nil && s.meter.noJS}
		}
	}
	s.hold()
	return rest, func() {
		rest.reply.release()
		s.release()
	}, nil
}
