// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
)

// The gate's records of clients and calls. Those of clients are kept for a while, so that
// a call of a client seen lately is admitted without an allocation.

const idleClients = 1024 // clients without calls that are remembered, or up to twice as many

// gateClient is what the gate knows of one client.
type gateClient struct {
	key   clientKey
	held  permitCounts
	calls int // executing or waiting
	flows [numClasses]flow

	// Places in the queue: all, and those of compute and of heavy calls.
	places, compute, heavy shareHolder

	used bool                  // since forgetLocked came by
	node listNode[*gateClient] // in the list of all clients
}

type callState uint8

const (
	callSpare   callState = iota // not in the gate's books
	callWaiting                  // in the queue; in a dry run it executes all the same
	callRunning                  // holds its permits
	callOutside                  // dry run only: refused in the books, executes without permits
)

// gateCall is one call at the gate: what its maker says of it, and what the gate notes.
// It belongs to its maker, who passes it to acquire and, if it was admitted, calls end
// exactly once. Then it may be used again, with since and bound set anew.
type gateCall struct {
	class  callClass
	key    clientKey
	method string         // of a known method, shown in the live dump
	since  mclock.AbsTime // when it arrived; 0: the gate reads the clock if it has to
	bound  mclock.AbsTime // when waiting ends; 0: the gate's longest wait from now

	// The rest is the gate's, and guarded by its lock while a call waits or executes;
	// but what the fast path does is guarded by the slot.
	gate   *gate
	slot   *fastSlot // where the fast path put it; its maker's
	state  callState
	why    refusal // set when a waiter is refused
	client *gateClient
	seq    uint64
	index  int           // in boundHeap, while waiting
	waited time.Duration // set when a waiter is admitted
	ready  chan struct{} // capacity 1: the wait is over
	node   listNode[*gateCall]
}

// clientLocked returns what is known of a client, at first nothing.
func (g *gate) clientLocked(key clientKey) *gateClient {
	client := g.clients[key]
	if client == nil {
		client = &gateClient{key: key}
		client.node.of = client
		client.places.key, client.compute.key, client.heavy.key = key, key, key
		for class := range client.flows {
			f := &client.flows[class]
			f.client, f.node.of = client, f
		}
		g.clients[key] = client
		g.known.pushBack(&client.node)
		g.forgetLocked()
	}
	return client
}

// forgetLocked looks at two clients for each that is new, and forgets those that have no
// calls and have had none since it looked at them last, if there are too many. That is
// almost as good as to forget who has been idle for longest, and a call whose client is
// known costs nothing.
func (g *gate) forgetLocked() {
	for range 2 {
		if g.known.n <= idleClients+g.active {
			return
		}
		oldest := g.known.front()
		g.known.remove(&oldest.node)
		if oldest.calls == 0 && !oldest.used {
			delete(g.clients, oldest.key)
			continue
		}
		oldest.used = false
		g.known.pushBack(&oldest.node)
	}
}

// joinLocked counts c among the calls of client, which is its own.
func (g *gate) joinLocked(c *gateCall, client *gateClient) {
	c.client, c.node.of = client, c
	if client.calls == 0 {
		g.active++
		client.used = true
	}
	client.calls++
}

// leaveLocked ends what the gate knows of c.
func (g *gate) leaveLocked(c *gateCall) {
	if c.client.calls--; c.client.calls == 0 {
		g.active--
	}
	c.client, c.state = nil, callSpare
}

// boundHeap is a heap.Interface of waiting calls, the next to expire first.
type boundHeap []*gateCall

func (h boundHeap) Len() int           { return len(h) }
func (h boundHeap) Less(i, j int) bool { return h[i].bound < h[j].bound }

func (h boundHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *boundHeap) Push(x any) {
	c := x.(*gateCall)
	c.index = len(*h)
	*h = append(*h, c)
}

func (h *boundHeap) Pop() any {
	last := len(*h) - 1
	c := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return c
}
