// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"bytes"
	"io"
	"net/http"
	"sync"
)

// WrapHandler returns h, which is mounted beside JSON-RPC on the HTTP server, as
// the guard serves it: bodies are read under the same budget, bounds and limit as
// those of JSON-RPC, and each request to an h named "GraphQL" is one call of class
// compute, which holds its permits until h has returned. A nil guard returns h.
func (g *Guard) WrapHandler(name string, h http.Handler) http.Handler {
	if g = g.orStandIn(); g == nil {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.serveHandler(name == "GraphQL", h, w, r)
	})
}

func (g *Guard) serveHandler(query bool, h http.Handler, w http.ResponseWriter, r *http.Request) {
	scope := g.openScope(w, r)
	defer scope.finish()
	cfg := g.bodyConfig(g.env.HTTPBodyLimit, 0)
	if cfg.limit <= 0 {
		cfg.limit = defaultBodyLimit
	}
	if r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0 {
		if g.readRequest(scope, w, r, cfg) {
			return
		}
		r = r.WithContext(r.Context()) // a copy
		r.Body, r.ContentLength = &frameBody{frame: &scope.frame}, int64(len(scope.frame.text))
	}
	if !query || !g.untrusted() {
		h.ServeHTTP(w, r)
		return
	}
	p, why := g.admitQuery(r, scope)
	if why != admitted {
		g.refuseQuery(w)
		return
	}
	reply := &queryWriter{w: w, status: http.StatusOK}
	how := outcomeFailed // unless it returns
	func() {
		defer func() { p.end(how) }()
		h.ServeHTTP(reply, r)
		switch {
		case r.Context().Err() != nil:
			how = outcomeCancelled
		case reply.status == http.StatusOK:
			how = outcomeServed
		}
	}()
	scope.releaseBody()
	reply.finish()
}

// frameBody is a body that was read, then the error of its sender.
type frameBody struct {
	frame *requestFrame
	off   int
}

// Read implements io.Reader.
func (b *frameBody) Read(p []byte) (int, error) {
	n := copy(p, b.frame.text[b.off:])
	if b.off += n; n == 0 && len(p) > 0 {
		b.frame.text, b.off = nil, 0 // it has been taken over
		if b.frame.err != nil {
			return 0, b.frame.err
		}
		return 0, io.EOF
	}
	return n, nil
}

// Close implements io.Closer.
func (b *frameBody) Close() error { return nil }

// admitQuery asks the gate for the permits of one query.
func (g *Guard) admitQuery(r *http.Request, scope *requestScope) (permit, refusal) {
	gate := g.admission.gate
	now := gate.clock.Now()
	left, _ := ContextRequestTimeout(r.Context())
	return gate.acquire(r.Context(), gateRequest{
		class: g.admission.classes.classify(graphqlMethod, nil), key: scope.key, method: graphqlMethod, now: now, bound: gate.waitBound(now, left),
	})
}

// refuseQuery answers a query that the gate refused. Its body has been read.
func (g *Guard) refuseQuery(w http.ResponseWriter) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(g.admission.status)
	msg := g.admission.refusedReply(&jsonrpcMessage{ID: null})
	fillRefusals(msg)
	w.Write(appendMessage(nil, msg))
}

// queryWriter keeps the reply to a query back until the permit it was made under is
// given back: a client that does not read must not hold one. A flush goes out at
// once, which is how a query that has run out of time is answered while it still
// runs.
type queryWriter struct {
	w http.ResponseWriter

	mu     sync.Mutex
	buf    bytes.Buffer
	status int
	sent   bool // the header is out
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

// finish sends what was kept back.
func (q *queryWriter) finish() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.sent {
		q.sent = true
		q.w.WriteHeader(q.status)
	}
	q.w.Write(q.buf.Bytes())
	q.buf.Reset()
}
