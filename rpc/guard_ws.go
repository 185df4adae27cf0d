// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import "net/http"

// admitUpgrade decides about a WebSocket handshake. It returns the writer to
// upgrade, or nil when it has answered the request itself.
func (g *Guard) admitUpgrade(w http.ResponseWriter, r *http.Request, readLimit int64) http.ResponseWriter {
	if g = g.orStandIn(); g == nil {
		return w
	}
	return wrapUpgrade(w)
}
