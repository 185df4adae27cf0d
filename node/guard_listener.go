// SPDX-License-Identifier: LGPL-3.0-or-later

package node

import (
	"net"
	"net/http"
)

// listen prepares an HTTP server and its listener before the first accept: what the
// guard bounds per connection, it bounds from there on.
func (ng *nodeGuard) listen(srv *http.Server, l net.Listener) net.Listener {
	if ng == nil {
		return l
	}
	return ng.guard.PrepareServer(srv, l)
}

// handler wraps what is mounted beside JSON-RPC, GraphQL above all.
func (ng *nodeGuard) handler(name string, h http.Handler) http.Handler {
	if ng == nil {
		return h
	}
	return ng.guard.WrapHandler(name, h)
}

// Unwrap lets http.ResponseController reach the connection's own writer. Without it
// no deadline of a single request and no full duplex works for clients that accept
// gzip.
func (w *gzipResponseWriter) Unwrap() http.ResponseWriter { return w.resp }
