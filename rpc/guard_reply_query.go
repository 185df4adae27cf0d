// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"net/http"
	"sync"
)

// queryWriter keeps the reply to a GraphQL query back until the permit it was made
// under is given back: a client that does not read must not hold one. A flush goes out
// at once, which is how a query that has run out of time is answered while it still
// runs.
//
// What is kept is charged as it comes, and until the client has taken it, like the
// reply to a call. One that does not fit is dropped and answered with an error.
type queryWriter struct {
	w     http.ResponseWriter
	scope *requestScope
	held  *replyCharge // nil: not charged

	mu     sync.Mutex
	buf    replyBuffer
	status int
	sent   bool // the header is out
}

func newQueryWriter(w http.ResponseWriter, scope *requestScope, held *replyCharge) *queryWriter {
	q := &queryWriter{w: w, scope: scope, held: held, status: http.StatusOK}
	if held != nil {
		q.buf.charge = held.encode
		if !held.books.dryRun {
			q.buf.max = held.books.max
		}
	}
	return q
}

// Header implements http.ResponseWriter.
func (q *queryWriter) Header() http.Header { return q.w.Header() }

// WriteHeader implements http.ResponseWriter.
func (q *queryWriter) WriteHeader(status int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.status = status
}

// Write implements http.ResponseWriter.
func (q *queryWriter) Write(p []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.buf.Write(p)
}

// Flush implements http.Flusher.
func (q *queryWriter) Flush() {
	q.finish()
	http.NewResponseController(q.w).Flush()
}

// Unwrap serves http.ResponseController.
func (q *queryWriter) Unwrap() http.ResponseWriter { return q.w }

// served reports whether what was written so far is a result that fits.
func (q *queryWriter) served() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.status == http.StatusOK && q.buf.err == nil && q.held.err() == nil
}

// finish sends what was kept back.
func (q *queryWriter) finish() {
	q.mu.Lock()
	defer q.mu.Unlock()
	err := q.buf.err
	if err == nil && q.sent && q.buf.size == 0 {
		return // a flush has sent everything
	}
	if err == nil {
		err = q.held.settle(q.buf.size, q)
	} else if q.held != nil {
		err = q.held.fail(err)
	}
	if err != nil {
		if !q.sent {
			q.sent = true
			h := q.w.Header()
			h.Del("Content-Encoding") // what was encoded is not sent
			h.Del("Content-Length")
			answerJSON(q.w, http.StatusServiceUnavailable, appendMessage(nil, errorMessage(err)))
		}
		return
	}
	if !q.sent {
		q.sent = true
		q.w.WriteHeader(q.status)
	}
	size := int(q.buf.size)
	if q.scope.out.begin(size) != nil {
		return
	}
	defer q.scope.out.end(size)
	for i, chunk := range q.buf.chunks {
		if _, err := q.w.Write(chunk); err != nil {
			break
		}
		q.buf.chunks[i] = nil
	}
	q.buf.chunks, q.buf.size = nil, 0
}

// cutReply implements replyCutter.
func (q *queryWriter) cutReply() { q.scope.out.cut() }

// pace implements pacedCutter.
func (q *queryWriter) pace() (rate int64, known bool) { return q.scope.out.stall.Load().pace() }
