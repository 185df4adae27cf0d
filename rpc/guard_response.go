// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"net"
	"strings"

	"github.com/ethereum/go-ethereum/common/mclock"
)

// guardReplies is a guard's part that bounds replies.
type guardReplies struct {
	*replyBooks
	stall *stallWatch
}

func newGuardReplies(cfg *GuardConfig, clock mclock.Clock) (*guardReplies, error) {
	books, err := newReplyBooks(cfg.Reply.Budget, cfg.Reply.Max)
	if err != nil {
		return nil, err
	}
	books.dryRun = cfg.DryRun
	r := &guardReplies{replyBooks: books}
	if r.stall, err = newStallWatch(clock, books.excess); err != nil {
		return nil, err
	}
	books.budget.paced = r.stall.anyPace
	return r, nil
}

// expect returns what is known of the replies to calls like msg.
func (r *guardReplies) expect(msg *jsonrpcMessage) replyExpectation {
	return r.history.lookup(kindOf(msg.Method, msg.Params))
}

// reserveReply reserves what the reply of an admitted call is expected to need. If
// there is no room it returns the answer instead of which the call would run; the
// permit is given back then, and the refusal counted. Light calls reserve nothing:
// their replies come from memory and are as small as the request.
func (m *messageScope) reserveReply(msg *jsonrpcMessage, s *callScope, expected replyExpectation) *jsonrpcMessage {
	if s.class == classLight {
		return nil
	}
	reply, err := m.g.replies.reserveIn(&s.charged, m.key, expected)
	if err != nil {
		m.g.admission.gate.books[s.class].refuse(refusedReply)
		s.permit.end(outcomeRefused)
		*s = callScope{} // the next call may use it
		return msg.errorResponse(err)
	}
	if s.reply = reply; reply == nil {
		return nil // dry run
	}
	reply.next, m.replies = m.replies, reply
	if s.class == classHeavy || buildsMuch(msg.Method) {
		s.meter = &BuildMeter{reply: reply, noJS: !m.g.cfg.Heavy.JSTracers}
	}
	return nil
}

// muchWork reports whether the reply of a call is expected to be so large that
// encoding it keeps a processor busy, for some 5 ms a megabyte. Such a call takes a
// processor permit, whatever its method: hundreds of clients that ask for 20 MB each
// would otherwise leave nobody else a processor. The start values are below that, so
// it takes replies that were as large.
func (e *replyExpectation) muchWork() bool { return e.size > startLists }

// buildsMuch names the methods that use a meter, whatever class they were put in.
func buildsMuch(method string) bool {
	return strings.HasPrefix(method, "debug_") || strings.HasPrefix(method, "trace_") || strings.HasSuffix(method, "Logs")
}

// releaseReplies gives back what the replies of a message held. It runs when the
// goroutine that served it ends: the reply has been written then, in full or as far
// as the connection took it, or was not wanted any more.
func (m *messageScope) releaseReplies() {
	for m.replies != nil {
		reply := m.replies
		m.replies, reply.next = reply.next, nil
		reply.release()
	}
}

// cutReply ends the transfer of the message's reply, because its client does not
// take it or another one has a better claim to the memory. It does not wait.
func (m *messageScope) cutReply() {
	switch {
	case m.conn != nil && m.conn.out != nil:
		m.conn.out.fail(errReplyCut)
	case m.request != nil:
		m.request.out.cut()
	}
}

// pace implements pacedCutter.
func (m *messageScope) pace() (rate int64, known bool) {
	switch {
	case m.conn != nil:
		return m.conn.stall.pace()
	case m.request != nil:
		return m.request.out.stall.Load().pace()
	}
	return 0, false
}

// watchStall has a stream cut when its client does not take what waits for it. That
// is judged by what leaves the kernel's send queue, so no write needs a deadline.
func (c *guardCodec) watchStall(out *socketOut, conn net.Conn) {
	boundSendBuffer(conn)
	queue := newKernelQueue(conn)
	out.timeout, out.progress, out.tells = 0, queue.wrote, queue.tells
	c.stall = c.g.replies.stall.conn(queue, func() { c.out.fail(errReplyCut) })
	out.watch = c.stall
}

// response stands in front of upstream's function of that name, which encodes the
// result of a call: the reply is charged while it comes into being, and replaced by
// an error if it does not fit.
func (msg *jsonrpcMessage) response(result any) *jsonrpcMessage {
	s := msg.guard
	if s == nil || s.reply == nil {
		return msg.responseUnguarded(result)
	}
	if s.unwanted() {
		// The client has been answered or has left; encoding would be for nobody.
		return msg.errorResponse(&internalServerError{errcodeTimeout, errMsgTimeout})
	}
	if !worthStreaming(result) {
		return s.wholeResponse(msg, result)
	}
	buf := &replyBuffer{charge: s.reply.encode, max: s.reply.books.max}
	if s.reply.books.dryRun {
		buf.max = 0
	}
	if err := newReplyEncoder(buf).encode(result); err != nil && buf.err == nil && err != errReplyTooLarge {
		return msg.errorResponse(&internalServerError{errcodeMarshalError, err.Error()})
	} else if err != nil {
		return s.refuseReply(msg, err)
	}
	buf.fit()
	resp := &jsonrpcMessage{Version: vsn, ID: msg.ID}
	if s.wantsWhole() || len(buf.chunks) == 1 || buf.size < spliceBytes {
		var err error
		pieces := len(buf.chunks)
		if resp.Result, err = buf.join(); err != nil {
			return s.refuseReply(msg, err)
		}
		if pieces > 1 {
			s.reply.joined(buf.size)
		}
	} else {
		resp.Result = buf.chunks[0]
		resp.guard = &callScope{chunks: buf.chunks, full: buf.full}
	}
	if err := s.reply.settle(buf.size, s.message); err != nil {
		return s.refuseReply(msg, err)
	}
	return resp
}

// wantsWhole reports whether whoever writes the reply must find all of the result in
// Result. Everywhere else only a result shorter than spliceBytes is sure to be there:
// of a longer one it may be the first piece, and writers ask resultChunks.
//
// Upstream adds up the lengths of a batch's results, so there they are whole; so they
// are for a codec of somebody else's, which writes what it finds.
func (s *callScope) wantsWhole() bool {
	return s.batch || s.message.conn != nil && s.message.conn.out == nil
}

// wholeResponse is response for a result that is encoded in one go.
func (s *callScope) wholeResponse(msg *jsonrpcMessage, result any) *jsonrpcMessage {
	resp := msg.responseUnguarded(result)
	if resp.Error != nil {
		return resp
	}
	size := int64(len(resp.Result))
	if max := s.reply.books.max; max > 0 && size > max {
		if err := s.reply.fail(errReplyTooLarge); err != nil { // not in a dry run
			return msg.errorResponse(err)
		}
	}
	err := s.reply.encode(size)
	if err == nil {
		err = s.reply.settle(size, s.message)
	}
	if err != nil {
		return s.refuseReply(msg, err)
	}
	return resp
}

// refuseReply answers a call whose reply does not fit. The connection lives on.
func (s *callScope) refuseReply(msg *jsonrpcMessage, err error) *jsonrpcMessage {
	return msg.errorResponse(s.reply.fail(err))
}

// unwanted reports whether nobody waits for the reply any more.
func (s *callScope) unwanted() bool {
	return s.Context != nil && s.Err() != nil
}

// chargeError charges the error that a call has come to: its data counts like a
// result. It returns the reply to send.
func (s *callScope) chargeError(msg, resp *jsonrpcMessage) *jsonrpcMessage {
	resp.guard = hasRun
	if s.reply == nil {
		return resp
	}
	var err error
	if size, max := int64(resp.errorSize()), s.reply.books.max; max > 0 && size > max {
		err = s.reply.fail(errReplyTooLarge)
	} else if err = s.reply.err(); err == nil {
		err = s.reply.abandon(size)
	}
	if err != nil {
		resp = msg.errorResponse(err)
		resp.guard = hasRun
	}
	return resp
}

// hasRun marks the errors of calls that ran. In a batch that was cut short they stand
// beside those that upstream makes up for the calls which did not come to their turn.
var hasRun = new(callScope)

// countCutShort books the entries of a batch that were answered without having run,
// because its time was over, or its replies too large: each arrived and failed, since
// that is what its client was told. The one that was executing when the time was over
// is in the books already.
func countCutShort(ctx context.Context, msgs []*jsonrpcMessage, isError bool) {
	m := messageOf(ctx)
	if !isError || m == nil || !m.g.untrusted() {
		return
	}
	n := uint64(0)
	for _, msg := range msgs {
		if msg.guard != nil {
			continue
		}
		if code := msg.errorCode(); code == errcodeTimeout || code == errcodeResponseTooLarge {
			n++
		}
	}
	if n > 0 && m.executing.Load() {
		n--
	}
	if n > 0 {
		book := &m.g.admission.gate.books[classNormal]
		book.arrived.Add(n)
		book.failed.Add(n)
	}
}

// resultChunks returns the pieces of a result that is held in more than one.
func (msg *jsonrpcMessage) resultChunks() [][]byte {
	if msg.guard == nil {
		return nil
	}
	return msg.guard.chunks
}

// resultSize returns the length of a result.
func (msg *jsonrpcMessage) resultSize() int {
	chunks := msg.resultChunks()
	if chunks == nil {
		return len(msg.Result)
	}
	n := 0
	for _, c := range chunks {
		n += len(c)
	}
	return n
}
