// SPDX-License-Identifier: LGPL-3.0-or-later

package filters

import (
	"net/http"

	"github.com/ethereum/go-ethereum/rpc"
)

// What forks spell differently.

// newPlainServer makes a server as upstream does. In bor it takes the size of a pool.
func newPlainServer() *rpc.Server { return rpc.NewServer() }

// anyOrigin serves WebSocket connections. In bsc it takes the limit of a message.
func anyOrigin(s *rpc.Server) http.Handler { return s.WebsocketHandler([]string{"*"}) }

// newPlainAPI makes the API of a system. In bor and bsc it takes an argument more, and in
// v1.13 it asks for a light client's mode, as newPlainEvents does.
func newPlainAPI(sys *FilterSystem) *FilterAPI { return NewFilterAPI(sys) }

// newPlainEvents makes the events of a system.
func newPlainEvents(sys *FilterSystem) *EventSystem { return NewEventSystem(sys) }
