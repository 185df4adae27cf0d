// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import "net/http"

// anyOrigin serves WebSocket connections. In bsc the limit of a message is an argument.
func anyOrigin(s *Server) http.Handler { return s.WebsocketHandler([]string{"*"}) }
