// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"net/http"
	"sync"
)

// requestScope accompanies one HTTP request from its first byte to the end of its
// reply. All that a request with one call needs lies in it.
type requestScope struct {
	g      *Guard
	key    clientKey
	end    context.Context // ends with the client or the server
	proto  int             // 1 or 2
	writer replyWriter     // what upstream writes to
	conn   httpReplyConn   // what the handler writes to
	out    httpOut         // the way of the reply
	frame  requestFrame    // the body as it was read
	body   charge          // for the body, while charged is set

	mu       sync.Mutex
	status   int           // of the reply, if a refusal wants its own; 0: upstream's
	transfer *bodyTransfer // while the body is being read
	wanted   int64         // what it might hold at most
	charged  bool          // body is not closed yet
	parses   bool          // holds a slot of g.parsing
	atEnd    []func()

	message messageScope // of its one message
	direct  directCall   // if it is served without upstream's handler
}

// beginParse waits for leave to parse a large body, and returns false if the request
// ends first. Parsing 5 MiB keeps a processor busy for tens of milliseconds, before
// there is a call that could be admitted, and with every processor parsing a trivial
// request waits behind all of them: one is left free. The slot is held until the
// first call of the request starts.
func (s *requestScope) beginParse() bool {
	select {
	case s.g.parsing <- struct{}{}:
	case <-s.end.Done():
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parses = true
	return true
}

// endParse gives the slot back. It may be called more than once.
func (s *requestScope) endParse() {
	s.mu.Lock()
	held := s.parses
	s.parses = false
	s.mu.Unlock()
	if held {
		<-s.g.parsing
	}
}

// requestOf returns the scope of the HTTP request that codec was made for, nil if it
// was made for none or nothing guards it: what upstream's codec writes to is known.
func requestOf(codec jsonWriter) *requestScope {
	c, ok := codec.(*jsonCodec)
	if !ok {
		return nil
	}
	conn, ok := c.conn.(*httpServerConn)
	if !ok {
		return nil
	}
	w, ok := conn.Writer.(*replyWriter)
	if !ok {
		return nil
	}
	return w.scope
}

// setStatus makes the reply, if it has not begun, go out with the given status. A
// refused call that is alone in its request uses it.
func (s *requestScope) setStatus(code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = code
}

// whenDone has fn run once the reply has left, or the request has ended without.
func (s *requestScope) whenDone(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.atEnd = append(s.atEnd, fn)
}

// evicted implements evictee: the bytes of the body were given to somebody else, who
// runs this.
func (s *requestScope) evicted() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.transfer; t != nil { // under the lock: it is reused as soon as it is not ours
		t.watch.fail(s.displaced())
	}
}

// releaseBody gives the request's bytes back. What is charged for it at that time
// is the reply, which has been built. It may be called more than once.
func (s *requestScope) releaseBody() {
	s.mu.Lock()
	charged := s.charged
	s.charged = false
	s.mu.Unlock()
	if charged {
		s.body.close()
	}
}

// finish releases whatever the request still holds. It runs deferred, so also
// when something above the method panicked.
func (s *requestScope) finish() {
	if s.writer.gz != nil {
		s.writer.gz.end()
	}
	s.endParse()
	s.releaseBody()
	s.mu.Lock()
	fns := s.atEnd
	s.atEnd = nil
	s.mu.Unlock()
	for _, fn := range fns {
		fn()
	}
}

// replyWriter is the response writer of a guarded request. The first write of the
// reply releases the request's bytes and takes the scope's status.
type replyWriter struct {
	http.ResponseWriter
	scope *requestScope
	begun bool
	gz    *gzipReply // nil: not compressed here
}

func (w *replyWriter) begin() (status int) {
	if w.begun {
		return 0
	}
	w.begun = true
	// A call that has run out of time is answered while its method still works on
	// the request. This header is how such an answer is told to compression.
	if w.Header().Get("Transfer-Encoding") != "identity" {
		w.scope.releaseBody()
	}
	w.compress()
	w.scope.mu.Lock()
	defer w.scope.mu.Unlock()
	return w.scope.status
}

// WriteHeader implements http.ResponseWriter.
func (w *replyWriter) WriteHeader(status int) {
	if own := w.begin(); own != 0 {
		status = own
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *replyWriter) Write(p []byte) (int, error) {
	if own := w.begin(); own != 0 {
		w.ResponseWriter.WriteHeader(own)
	}
	if w.gz != nil {
		return w.gz.Write(p)
	}
	return w.ResponseWriter.Write(p)
}

// Flush implements http.Flusher.
func (w *replyWriter) Flush() {
	if w.gz != nil {
		w.gz.flush()
	}
	http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap serves http.ResponseController.
func (w *replyWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
