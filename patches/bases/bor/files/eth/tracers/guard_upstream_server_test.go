// SPDX-License-Identifier: LGPL-3.0-or-later

package tracers

import (
	"net/http"

	"github.com/ethereum/go-ethereum/rpc"
)

// The variant for bor, where a pool of size 0 runs calls at once.

// newServer makes a server.
func newServer() *rpc.Server { return rpc.NewServer("guard", 0, 0) }

// anyOrigin serves WebSocket connections.
func anyOrigin(s *rpc.Server) http.Handler { return s.WebsocketHandler([]string{"*"}) }
