// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"container/heap"
	"context"
	"errors"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
)

// The calls that wait at the gate: who gets a place, whose turn it is, and how long a
// place is kept. Model and invariants stand with the gate itself.

// waitBound returns when a call that arrives now must have stopped waiting, if left
// is what its request has until its own deadline (0: none): half of that is for the
// method.
func (g *gate) waitBound(now mclock.AbsTime, left time.Duration) mclock.AbsTime {
	wait := g.wait
	if left != 0 {
		wait = min(wait, left/2)
	}
	return now.Add(max(wait, 1))
}

// makeRoomLocked finds a place for a call of client, refusing a waiter if the
// shares say so, or else refusing the newcomer.
func (g *gate) makeRoomLocked(client *gateClient, class callClass) refusal {
	if class == classParked {
		return refusedFull
	}
	if g.queue.total > g.limit.Queue {
		return refusedFull // the limit was lowered: taking somebody's place is not enough
	}
	waiting := &g.queue.rings
	if class == classHeavy {
		switch n, places := waiting[classHeavy].calls, g.limit.heavyPlaces(); {
		case n > places:
			return refusedFull
		case n == places:
			loser, ok := g.heavy.loserTo(client.heavy.held, 1)
			if !ok {
				return refusedFull
			}
			g.refuseLocked(g.clients[loser].flows[classHeavy].calls.back(), refusedDisplaced)
			return admitted
		}
	}
	if g.queue.total < g.limit.Queue {
		return admitted
	}
	if class == classNormal && moreThanThreeQuarters(waiting[classCompute].calls, g.limit.Queue) {
		greediest, _ := g.compute.greediest()
		g.refuseLocked(g.clients[greediest].flows[classCompute].calls.back(), refusedDisplaced)
		return admitted
	}
	loser, ok := g.places.loserTo(client.places.held, 1)
	if !ok {
		return refusedFull
	}
	g.refuseLocked(g.queue.newest(g.clients[loser]), refusedDisplaced)
	return admitted
}

// moreThanThreeQuarters reports n > 3*of/4 without forming the product.
func moreThanThreeQuarters(n, of int) bool {
	return n > of/4*3+of%4*3/4
}

// enqueueLocked gives c a place in the queue.
func (g *gate) enqueueLocked(c *gateCall, now mclock.AbsTime) {
	c.state = callWaiting
	g.queue.push(c)
	g.highQ = max(g.highQ, g.queue.total)
	g.countPlaceLocked(c, 1)
	heap.Push(&g.bounds, c)
	if g.timerAt == 0 || c.bound < g.timerAt {
		g.setTimerLocked(c.bound, now)
	}
}

// dequeueLocked gives the place of c back. The caller says what becomes of it.
func (g *gate) dequeueLocked(c *gateCall) {
	g.countPlaceLocked(c, -1)
	heap.Remove(&g.bounds, c.index)
}

func (g *gate) countPlaceLocked(c *gateCall, n int64) {
	g.places.adjust(&c.client.places, n)
	switch c.class {
	case classCompute:
		g.compute.adjust(&c.client.compute, n)
	case classHeavy:
		g.heavy.adjust(&c.client.heavy, n)
	}
}

// refuseLocked ends the wait of c with a refusal.
func (g *gate) refuseLocked(c *gateCall, why refusal) {
	g.queue.remove(c)
	g.dequeueLocked(c)
	if g.dry {
		c.state = callOutside
		g.books[c.class].refuse(why)
		return
	}
	c.why = why
	g.leaveLocked(c)
	c.ready <- struct{}{} // never blocks: sent once for each use of the record
}

// dispatchLocked admits waiting calls until none can be.
func (g *gate) dispatchLocked() {
	if g.queue.total == 0 {
		return
	}
	now := g.clock.Now()
	for c := g.nextLocked(); c != nil; c = g.nextLocked() {
		if c.bound <= now {
			g.refuseLocked(c, refusedExpired) // the timer is late; a call must not be served late
			continue
		}
		if !g.takeExecLocked(c.class) {
			return
		}
		g.queue.take(c)
		g.dequeueLocked(c)
		g.grantLocked(c)
		c.waited = now.Sub(c.since)
		if !g.dry {
			c.ready <- struct{}{}
		}
	}
}

// setTimerLocked has expire called at the given time. One timer serves all waiting
// calls: it is set for the first of them to expire, and since most wait equally long
// a call that arrives later seldom moves it.
func (g *gate) setTimerLocked(at, now mclock.AbsTime) {
	if g.timer != nil {
		g.timer.Stop()
	}
	g.timerAt = at
	g.timer = g.clock.AfterFunc(at.Sub(now), g.expire)
}

// expire refuses the calls whose wait has reached its bound.
func (g *gate) expire() {
	g.mu.Lock()
	defer g.mu.Unlock()

	now := g.clock.Now()
	for len(g.bounds) > 0 && g.bounds[0].bound <= now {
		g.refuseLocked(g.bounds[0], refusedExpired)
	}
	g.timerAt = 0
	if len(g.bounds) > 0 {
		g.setTimerLocked(g.bounds[0].bound, now)
	}
}

// nextLocked returns the waiting call whose turn it is among those that lack no permit
// but perhaps that to execute.
func (g *gate) nextLocked() *gateCall {
	var next *flow
	for class := range g.queue.rings {
		ring := &g.queue.rings[class]
		if ring.calls == 0 || !g.limit.allow(callClass(class), &g.held) {
			continue
		}
		n := ring.flows.first
		for n != nil && g.cappedLocked(n.of, ring, callClass(class)) {
			n = n.next
		}
		if n == nil {
			continue
		}
		// Two flows of one client may share a turn: then the older call goes first.
		if f := n.of; next == nil || f.turn < next.turn || f.turn == next.turn && f.calls.front().seq < next.calls.front().seq {
			next = f
		}
	}
	if next == nil {
		return nil
	}
	return next.calls.front()
}

// cappedLocked reports whether the client of f must leave what is free to others
// that wait for the same class. At most two clients can be at the cap while a
// permit is free, unless the limit shrank, so the search past them is short. It
// never leaves a permit idle: for all waiting clients of a class to be at the cap
// all permits must be taken (TestGateModel, "no call waits for free permits").
func (g *gate) cappedLocked(f *flow, ring *flowRing, class callClass) bool {
	if ring.calls == f.calls.n {
		return false // nobody else waits
	}
	scarcest := scarcestPermit[class]
	return f.client.held[scarcest] >= fairCap(g.limit.of(scarcest))
}

// errServerStops is the cause with which a server that stops ends the contexts of its
// requests.
var errServerStops = errors.New("server is shutting down")

// whyDone tells a client that has left from a server that stops. The gate itself does
// not stop: it serves all servers of a node, of which one may be stopped by itself, and
// the contexts of a server's requests end whatever waits or executes for its clients.
func whyDone(ctx context.Context) refusal {
	if errors.Is(context.Cause(ctx), errServerStops) {
		return refusedShutdown
	}
	return refusedGone
}

// giveUp ends the wait of a call whose context is done, unless it has ended.
func (g *gate) giveUp(c *gateCall, why refusal) {
	g.mu.Lock()
	defer g.mu.Unlock()

	if c.state == callWaiting {
		g.refuseLocked(c, why)
	}
}
