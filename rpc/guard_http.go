// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import "net/http"

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
	s.serveHTTPUnguarded(w, r)
}
