// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
)

// The gate's records of clients and calls. Both are kept for reuse, so that a call
// of a client seen lately is admitted without an allocation. The gate's lock
// guards them all.

const (
	idleClients = 1024 // clients without calls that are remembered
	spareCalls  = 1024 // records of ended calls that are kept
)

// gateClient is what the gate knows of one client.
type gateClient struct {
	key   clientKey
	held  permitCounts
	calls int // executing or waiting
	flows [numClasses]flow

	// Places in the queue: all, and those of compute and of heavy calls.
	places, compute, heavy shareHolder

	prev, next *gateClient // in the list of idle clients, if calls is 0
}

type callState uint8

const (
	callSpare   callState = iota
	callWaiting           // in the queue; in a dry run it executes all the same
	callRunning           // holds its permits
	callOutside           // dry run only: refused in the books, executes without permits
)

// gateCall is one call at the gate. Records are reused, and gen tells the uses
// apart so that a permit released twice is noticed.
type gateCall struct {
	gen    uint64
	state  callState
	class  callClass
	client *gateClient
	method string
	seq    uint64
	since  mclock.AbsTime
	bound  mclock.AbsTime
	index  int           // in boundHeap, while waiting
	waited time.Duration // set when a waiter is admitted
	why    refusal       // set when a waiter is refused
	ready  chan struct{} // capacity 1: the wait is over

	prev, next *gateCall // in a flow, in the list of running calls, or (next) of spare ones
}

// clientLocked returns what is known of a client, at first nothing.
func (g *gate) clientLocked(key clientKey) *gateClient {
	client := g.clients[key]
	if client == nil {
		client = &gateClient{key: key}
		client.places.key, client.compute.key, client.heavy.key = key, key, key
		for class := range client.flows {
			client.flows[class].client = client
		}
		g.clients[key] = client
		g.toIdleLocked(client)
	}
	return client
}

// toIdleLocked notes that client has no calls, and forgets the client that has
// been without any for longest if there are too many.
func (g *gate) toIdleLocked(client *gateClient) {
	g.idle.append(client)
	if g.idle.n > idleClients {
		oldest := g.idle.first
		g.idle.remove(oldest)
		delete(g.clients, oldest.key)
	}
}

func (g *gate) newCallLocked(client *gateClient, r *gateRequest, now mclock.AbsTime) *gateCall {
	if client.calls == 0 {
		g.idle.remove(client)
	}
	client.calls++

	c := g.spare
	if c != nil {
		g.spare, c.next = c.next, nil
		g.spares--
	} else {
		c = new(gateCall)
	}
	g.seq++
	c.client, c.class, c.method = client, r.class, r.method
	c.seq, c.since, c.waited, c.why = g.seq, now, 0, admitted
	return c
}

func (g *gate) freeCallLocked(c *gateCall) {
	client := c.client
	c.gen++
	c.state, c.client, c.method = callSpare, nil, ""
	if g.spares < spareCalls {
		c.next, g.spare = g.spare, c
		g.spares++
	}
	if client.calls--; client.calls == 0 {
		g.toIdleLocked(client)
	}
}

// callList is a list of calls in order of admission.
type callList struct{ first, last *gateCall }

func (l *callList) append(c *gateCall) {
	c.prev, c.next = l.last, nil
	if l.last != nil {
		l.last.next = c
	} else {
		l.first = c
	}
	l.last = c
}

func (l *callList) remove(c *gateCall) {
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		l.first = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	} else {
		l.last = c.prev
	}
	c.prev, c.next = nil, nil
}

// clientList is a list of clients without calls, the one without for longest first.
type clientList struct {
	first, last *gateClient
	n           int
}

func (l *clientList) append(c *gateClient) {
	c.prev, c.next = l.last, nil
	if l.last != nil {
		l.last.next = c
	} else {
		l.first = c
	}
	l.last = c
	l.n++
}

func (l *clientList) remove(c *gateClient) {
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		l.first = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	} else {
		l.last = c.prev
	}
	c.prev, c.next = nil, nil
	l.n--
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
