// SPDX-License-Identifier: LGPL-3.0-or-later

package filters

import (
	"net/http"

	"github.com/ethereum/go-ethereum/core"
	"github.com/ethereum/go-ethereum/event"
	"github.com/ethereum/go-ethereum/rpc"
)

// What forks spell differently.

// newPlainServer makes a server as upstream does.
func newPlainServer() *rpc.Server { return rpc.NewServer() }

// anyOrigin serves WebSocket connections.
func anyOrigin(s *rpc.Server) http.Handler { return s.WebsocketHandler([]string{"*"}, 32<<20) }

// newPlainAPI makes the API of a system. The argument asks for a limit of ranges.
func newPlainAPI(sys *FilterSystem) *FilterAPI { return NewFilterAPI(sys, false) }

// The event system asks for these feeds, too.

func (b *feedBackend) SubscribeFinalizedHeaderEvent(ch chan<- core.FinalizedHeaderEvent) event.Subscription {
	return new(event.FeedOf[core.FinalizedHeaderEvent]).Subscribe(ch)
}

func (b *feedBackend) SubscribeNewVoteEvent(ch chan<- core.NewVoteEvent) event.Subscription {
	return new(event.FeedOf[core.NewVoteEvent]).Subscribe(ch)
}

// newPlainEvents makes the events of a system.
func newPlainEvents(sys *FilterSystem) *EventSystem { return NewEventSystem(sys) }
