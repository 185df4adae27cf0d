// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"sync/atomic"

	"github.com/ethereum/go-ethereum/common/mclock"
)

// The three scopes say whom a piece of work is done for: an HTTP request, a message
// (a batch being one), a call. Each finds the next through the context.

// messageScope accompanies one message from the goroutine that serves it to its
// reply.
type messageScope struct {
	g       *Guard
	key     clientKey
	request *requestScope          // nil on streams
	conn    *guardCodec            // nil over HTTP
	ctx     context.Context        // ends when the client has gone, not when the message's time is up
	body    atomic.Pointer[charge] // for the message's bytes on streams

	// bound is when waiting for permits ends, for all calls of the message
	// together; 0 until the first of them arrives.
	bound mclock.AbsTime

	replies   []*replyCharge // of its calls, given back when it has been answered
	executing atomic.Bool    // one of its calls that wants an answer
}

type messageScopeKey struct{}

// releaseBody gives the message's bytes back. It may be called more than once.
func (m *messageScope) releaseBody() { m.body.Swap(nil).close() }

// messageScope returns the scope of a message that arrived for h, nil if nothing
// guards it: a client's handler has no guarded connection and no guarded request.
func (h *handler) messageScope() *messageScope {
	if c, ok := h.conn.(*guardCodec); ok {
		return &messageScope{g: c.g, key: c.key, conn: c}
	}
	if r := requestScopeOf(h.rootCtx); r != nil {
		return &messageScope{g: r.g, key: r.key, request: r}
	}
	return nil
}

// callScope accompanies one call from admission to the last byte of its reply.
// The request message carries it, and so does the response made from it. The
// call's context carries it too, for what a method does in the background.
type callScope struct {
	g       *Guard
	message *messageScope
	class   callClass
	permit  permit
	worker  chan struct{} // of a heavy call: held by the worker that may run
	refusal *refusalError // of a refused call; the rest is not used then

	// holders is how many keep the permit: the call, and what it left running.
	holders atomic.Int32
	ended   atomic.Uint32 // outcome, valid once the call is over

	ctx    context.Context // ends when nobody waits for the call's reply any more
	batch  bool            // it is an entry of a batch
	reply  *replyCharge    // nil: not charged
	meter  *BuildMeter     // nil: what the method builds is not counted
	chunks [][]byte        // of a response: its result, if that is in pieces
}

type callScopeKey struct{}

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

// HoldPermit keeps the permit of the call that ctx belongs to until the returned
// function is called, exactly once, even if the method returns before. It is for
// methods whose work goes on in the background. Without a guard it does nothing.
func HoldPermit(ctx context.Context) (release func()) {
	s, ok := ctx.Value(callScopeKey{}).(*callScope)
	if !ok {
		return func() {}
	}
	s.hold()
	return s.release
}
