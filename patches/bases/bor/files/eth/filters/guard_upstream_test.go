// SPDX-License-Identifier: LGPL-3.0-or-later

package filters

import (
	"net/http"

	"github.com/ethereum/go-ethereum/core"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/event"
	"github.com/ethereum/go-ethereum/rpc"
)

// What forks spell differently.

// newPlainServer makes a server as upstream does. A pool of size 0 runs calls at once.
func newPlainServer() *rpc.Server { return rpc.NewServer("guard", 0, 0) }

// anyOrigin serves WebSocket connections.
func anyOrigin(s *rpc.Server) http.Handler { return s.WebsocketHandler([]string{"*"}) }

// newPlainAPI makes the API of a system. The argument asks for logs of bor, too.
func newPlainAPI(sys *FilterSystem) *FilterAPI { return NewFilterAPI(sys, false) }

// The event system asks for these feeds, too.

func (b *feedBackend) SubscribePendingLogsEvent(ch chan<- []*types.Log) event.Subscription {
	return new(event.FeedOf[[]*types.Log]).Subscribe(ch)
}

func (b *feedBackend) SubscribeStateSyncEvent(ch chan<- core.StateSyncEvent) event.Subscription {
	return new(event.FeedOf[core.StateSyncEvent]).Subscribe(ch)
}

// newPlainEvents makes the events of a system.
func newPlainEvents(sys *FilterSystem) *EventSystem { return NewEventSystem(sys) }
