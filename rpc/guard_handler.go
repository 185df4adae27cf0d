// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"io"
	"net/http"
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
	var call gateCall
	if g.admitQuery(&call, r, scope) != admitted {
		g.refuseQuery(w)
		return
	}
	held, err := g.replies.reserve(scope.key, replyKind{method: graphqlMethod})
	if err != nil {
		g.admission.gate.books[call.class].refuse(refusedReply)
		call.end(outcomeRefused)
		answerJSON(w, g.admission.status, appendMessage(nil, errorMessage(err)))
		return
	}
	defer held.release()
	reply := newQueryWriter(w, scope, held)
	how := outcomeFailed // unless it returns
	func() {
		defer func() { call.end(how) }()
		cost := queryCost(scope.frame.text)
		if cost > maxQueryFields && !g.cfg.DryRun {
			answerJSON(reply, http.StatusBadRequest, queryTooLong())
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		s := &callScope{Context: ctx, g: g}
		if held != nil {
			s.meter = &BuildMeter{reply: held, stop: cancel}
			s.meter.Hold(int64(cost*cost) / 2 * pairSize) // it ends the query if there is no room
		}
		h.ServeHTTP(reply, r.WithContext(s))
		switch {
		case r.Context().Err() != nil:
			how = outcomeCancelled
		case reply.served():
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
func (g *Guard) admitQuery(call *gateCall, r *http.Request, scope *requestScope) refusal {
	gate := g.admission.gate
	now := gate.clock.Now()
	left, _ := ContextRequestTimeout(r.Context())
	*call = gateCall{
		class:  g.admission.classes.classify(graphqlMethod, nil),
		key:    scope.key,
		method: graphqlMethod,
		since:  now,
		bound:  gate.waitBound(now, left),
	}
	return gate.acquire(r.Context(), call)
}

// refuseQuery answers a query that the gate refused. Its body has been read.
func (g *Guard) refuseQuery(w http.ResponseWriter) {
	msg := g.admission.refusedReply(&jsonrpcMessage{ID: null})
	fillRefusals(msg)
	answerJSON(w, g.admission.status, appendMessage(nil, msg))
}

// answerJSON answers a request with a message that is encoded already.
func answerJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	w.Write(body)
}
