// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"time"
)

// ServeHTTP serves JSON-RPC requests over HTTP.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if g := s.services.guard.orStandIn(); g != nil {
		g.serveHTTP(s, w, r)
		return
	}
	s.serveHTTPUnguarded(w, r)
}

// serveHTTP is ServeHTTP under a guard: the body is read here, under the budget
// and in time, and upstream is handed one that is complete. So a refusal finds
// nothing written yet, and what upstream allocates for the length it is told is
// the length that really came.
func (g *Guard) serveHTTP(s *Server, w http.ResponseWriter, r *http.Request) {
	scope := g.openScope(r)
	defer scope.finish()
	r = r.WithContext(context.WithValue(r.Context(), requestScopeKey{}, scope))
	cfg := g.bodyConfig(int64(s.httpBodyLimit), s.batchItemLimit)
	if readsJSONBody(r) && (r.ContentLength <= cfg.limit || g.untrusted() && !g.cfg.DryRun) {
		body, refused := g.readRequest(scope, w, r, cfg)
		if refused {
			return
		}
		defer body.Close()
		if body.oversized {
			g.admission.countOversizedBatch()
		}
		r.Body, r.ContentLength = body, body.size()
		if body.size() > budgetStep && g.untrusted() && !g.cfg.DryRun && !scope.beginParse() {
			return // nobody is left to answer
		}
		if body.size() == 0 {
			r.ContentLength = -1 // 0 would make a health check of a GET
		}
	}
	scope.w = &replyWriter{ResponseWriter: w, scope: scope}
	s.serveHTTPUnguarded(scope.w, r)
}

func (g *Guard) openScope(r *http.Request) *requestScope {
	scope := &requestScope{g: g, end: r.Context()}
	if g.untrusted() {
		scope.key = g.keys.keyFor(r.RemoteAddr, r.Header)
	}
	return scope
}

// readsJSONBody reports whether upstream would read the body of r, by the rules
// it refuses requests by. Whatever it refuses it refuses without reading.
func readsJSONBody(r *http.Request) bool {
	switch {
	case r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0:
		return false
	case r.Method == http.MethodPut || r.Method == http.MethodDelete:
		return false
	case r.Method == http.MethodOptions:
		return true
	}
	mt, _, err := mime.ParseMediaType(r.Header.Get("content-type"))
	return err == nil && slices.Contains(acceptedContentTypes, mt)
}

// bodyConfig returns the bounds of one body. Trusted clients have none but its
// length.
func (g *Guard) bodyConfig(limit int64, maxBatch int) bodyConfig {
	cfg := bodyConfig{limit: limit}
	if !g.untrusted() {
		return cfg
	}
	if !g.cfg.DryRun {
		cfg.maxBatch = maxBatch
	}
	cfg.idle = g.cfg.Body.Idle
	if rt := g.env.ReadTimeout; rt > 0 {
		if rt < time.Second {
			rt = DefaultHTTPTimeouts.ReadTimeout // what the node makes of it
		}
		cfg.absolute = max(rt-time.Second, rt/2)
	}
	return cfg
}

// completeBody is a body as upstream gets it: what was read, then the error of the
// sender, if any.
type completeBody struct {
	*chunkBuffer
	err error
}

func (b *completeBody) Read(p []byte) (int, error) {
	n, err := b.chunkBuffer.Read(p)
	if err == io.EOF && b.err != nil {
		err = b.err
	}
	return n, err
}

// readRequest reads the body of r. If it returns refused the request has been
// answered. The scope holds what the body is charged.
func (g *Guard) readRequest(scope *requestScope, w http.ResponseWriter, r *http.Request, cfg bodyConfig) (body *completeBody, refused bool) {
	if !g.untrusted() {
		kept, err := readBody(r.Body, r.ContentLength, cfg, nil, nil)
		return upstreamBody(kept, err), false
	}
	if r.ContentLength > cfg.limit {
		return nil, g.refuseBody(w, r, cfg, false, contentLengthError(r.ContentLength, cfg.limit))
	}
	rc := http.NewResponseController(w)
	watch := watchBody(r.Context(), g.clock, cfg, rc.SetReadDeadline)
	watch.dry = g.cfg.DryRun
	// Displaced: the limit is the most it could have wanted.
	displaced := &budgetError{Wanted: max(r.ContentLength, budgetStep), Limit: g.cfg.Body.Budget}
	mem := g.body.open(scope.key, func() { watch.fail(displaced) })
	scope.body = mem
	kept, err := readBody(r.Body, r.ContentLength, cfg, mem, watch)
	if cause := watch.stop(); cause != nil {
		err = cause
	} else if err == nil && !mem.setEvict(nil) {
		err = displaced // after the last byte
	}
	if isBodyRefusal(err) && !g.cfg.DryRun {
		begun := kept.size() > 0
		kept.Close()
		scope.releaseBody()
		return nil, g.refuseBody(w, r, cfg, begun, err)
	}
	if watch.would != nil {
		g.bodyBooks.count(watch.would)
	}
	return upstreamBody(kept, err), false
}

// upstreamBody is a body that nobody refuses. Of one that is too large upstream
// parses as much as the limit allows.
func upstreamBody(kept *chunkBuffer, err error) *completeBody {
	if err == errBodyTooLarge {
		err = nil
	}
	return &completeBody{kept, err}
}

func contentLengthError(n, limit int64) error {
	return fmt.Errorf("%w: content length too large (%d>%d)", errBodyTooLarge, n, limit)
}

// isBodyRefusal tells refusals from failures of the sender, which upstream answers
// as it always did.
func isBodyRefusal(err error) bool {
	var full *budgetError
	return errors.As(err, &full) || errors.Is(err, errBodyTooLarge) ||
		err == errBodyIdle || err == errBodySlow || err == errBodyShutdown
}
