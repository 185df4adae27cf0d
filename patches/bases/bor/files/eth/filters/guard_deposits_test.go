// SPDX-License-Identifier: LGPL-3.0-or-later

package filters

import (
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/core"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/rpc"
)

// A subscriber of deposits that leaves with its channel full: the event loop waits
// in its send, and the request to uninstall waits for the event loop.
func TestHookReachedDepositsDrained(t *testing.T) {
	var (
		es  = &EventSystem{uninstall: make(chan *subscription)}
		sub = &subscription{id: rpc.NewID(), typ: StateSyncSubscription, stateSyncData: make(chan *types.StateSyncData, 1), err: make(chan error)}
		all = filterIndex{StateSyncSubscription: {sub.id: sub}}
	)
	loop, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(loop)
		for range 3 { // one more than the channel and a waiting send hold
			es.handleStateSyncEvent(all, core.StateSyncEvent{Data: new(types.StateSyncData)})
		}
		close((<-es.uninstall).err)
	}()
	for len(sub.stateSyncData) == 0 {
		time.Sleep(time.Millisecond) // until the loop is in its send
	}
	go func() {
		defer close(gone)
		(&Subscription{ID: sub.id, f: sub, es: es}).Unsubscribe()
	}()
	for _, done := range []chan struct{}{loop, gone} {
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Fatal("the event loop and the leaving subscriber wait for each other")
		}
	}
}
