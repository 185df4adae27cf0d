// SPDX-License-Identifier: LGPL-3.0-or-later

package tracers

import (
	"net/http"

	"github.com/ethereum/go-ethereum/rpc"
)

// What forks spell differently: in bor a server takes the size of a pool, in bsc a handler
// the limit of a message.

// newServer makes a server.
func newServer() *rpc.Server { return rpc.NewServer() }

// anyOrigin serves WebSocket connections.
func anyOrigin(s *rpc.Server) http.Handler { return s.WebsocketHandler([]string{"*"}) }
