// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import "net/http"

// anyOrigin serves WebSocket connections.
func anyOrigin(s *Server) http.Handler {
	return s.WebsocketHandler([]string{"*"}, wsDefaultReadLimit)
}
