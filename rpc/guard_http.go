// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"net/http"
)

// ServeHTTP serves JSON-RPC requests over HTTP.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if g := s.services.guard.orStandIn(); g != nil {
		g.serveHTTP(s, w, r)
		return
	}
	s.serveHTTPUnguarded(w, r)
}

// serveHTTP is ServeHTTP under a guard.
func (g *Guard) serveHTTP(s *Server, w http.ResponseWriter, r *http.Request) {
	scope := &requestScope{g: g}
	if g.untrusted() {
		scope.key = g.keys.keyFor(r.RemoteAddr, r.Header)
	}
	r = r.WithContext(context.WithValue(r.Context(), requestScopeKey{}, scope))
	s.serveHTTPUnguarded(&replyWriter{ResponseWriter: w, scope: scope}, r)
}
