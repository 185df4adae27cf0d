// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"bytes"
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
	scope := g.openScope(w, r)
	defer scope.finish()
	cfg := g.bodyConfig(int64(s.httpBodyLimit), s.batchItemLimit)
	if readsJSONBody(r) && (r.ContentLength <= cfg.limit || g.enforces()) {
		refused := g.readRequest(scope, w, r, cfg)
		if refused {
			return
		}
		if scope.frame.oversized {
			g.admission.countOversizedBatch()
		}
		if len(scope.frame.text) > budgetStep && g.enforces() && !scope.beginParse() {
			return // nobody is left to answer
		}
		if g.serveDirectly(s, scope, r) {
			return
		}
		r = scope.handOver(r)
	}
	s.serveHTTPUnguarded(&scope.writer, r)
}

func (g *Guard) openScope(w http.ResponseWriter, r *http.Request) *requestScope {
	scope := &requestScope{g: g, end: r.Context(), proto: r.ProtoMajor}
	scope.writer = replyWriter{ResponseWriter: w, scope: scope}
	scope.conn.scope, scope.out.scope = scope, scope
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
	ct := r.Header.Get("Content-Type")
	if ct == contentType {
		return true // hardly anybody sends another, and parsing it costs as much as a charge
	}
	mt, _, err := mime.ParseMediaType(ct)
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

// requestFrame is a body as it was read, then the error of the sender, if any.
type requestFrame struct {
	text      []byte
	err       error
	read      bool // by the guard; upstream's own reader is not used then
	oversized bool // a batch with too many elements
	batch     bool
}

// take returns the body as upstream's own reader would.
func (f *requestFrame) take() ([]byte, error) {
	text := f.text
	f.text = nil
	if f.err != nil {
		return nil, f.err
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, io.EOF
	}
	return text, nil
}

// set takes over what was read. The error of a body that nobody refuses is its
// sender's; of one that is too large upstream parses as much as the limit allows.
func (f *requestFrame) set(kept *chunkBuffer, err error) {
	if err == errBodyTooLarge {
		err = nil
	}
	f.oversized = kept.oversized
	f.text, f.err, f.read = kept.join(), err, true
	f.batch = isBatch(f.text)
}

// bodyTransfer is what reading one body needs. The timer reuses it: a call of 200 bytes must
// not cost more to read than to run.
type bodyTransfer struct {
	reader bodyReader
	watch  bodyWatch
}

// beginTransfer lets the scope be displaced while its body is read, as one that may
// want wanted bytes.
func (s *requestScope) beginTransfer(t *bodyTransfer, wanted int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.transfer, s.charged, s.wanted = t, true, max(wanted, budgetStep)
}

func (s *requestScope) endTransfer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.transfer = nil
}

// displaced is what to say if somebody else gets the body's bytes. The limit is the
// most that it could have wanted.
func (s *requestScope) displaced() error {
	return &budgetError{Wanted: s.wanted, Limit: s.g.cfg.Body.Budget}
}

// readRequest reads the body of r into the scope's frame. If it returns true the
// request has been answered. The scope holds what the body is charged.
func (g *Guard) readRequest(scope *requestScope, w http.ResponseWriter, r *http.Request, cfg bodyConfig) (refused bool) {
	if !g.untrusted() {
		kept, err := readBody(r.Body, r.ContentLength, cfg, nil, nil)
		scope.frame.set(kept, err)
		return false
	}
	if r.ContentLength > cfg.limit {
		return g.refuseBody(w, r, cfg, false, contentLengthError(r.ContentLength, cfg.limit))
	}
	t := g.bodyTimer.transfer()
	defer g.bodyTimer.recycle(t)
	mem := g.body.openIn(&scope.body, scope.key, scope)
	scope.beginTransfer(t, r.ContentLength)
	defer scope.endTransfer() // before t is reused, whatever the source does
	g.bodyTimer.watch(&t.watch, r.Context(), cfg, w, g.cfg.DryRun)
	defer t.watch.stop()
	t.reader = bodyReader{cfg: cfg, src: r.Body, watch: &t.watch, mem: mem, declared: r.ContentLength}
	kept, err := t.reader.readAll()
	cause := t.watch.stop()
	pinned := mem.setEvict(nil)
	switch {
	case cause != nil:
		err = cause
	case err == nil && !pinned:
		err = scope.displaced() // after the last byte
	}
	if err != nil && isBodyRefusal(err) && !g.cfg.DryRun {
		begun := kept.size() > 0
		kept.Close()
		scope.releaseBody()
		return g.refuseBody(w, r, cfg, begun, err)
	}
	if t.watch.would != nil {
		g.bodyBooks.count(t.watch.would)
	}
	scope.frame.set(kept, err)
	return false
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
