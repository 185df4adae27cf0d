// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
)

// gate decides which calls execute now, which wait, and which are refused.
//
// # Model
//
// A normal call holds one execution permit while it runs, a compute call that and
// a processor permit, a heavy call both and a heavy permit. Light calls hold
// nothing and are never kept; parked calls hold a parked permit only. A call gets
// all its permits in one step or none of them: a waiting call occupies nothing
// but its place in the queue.
//
// Arrival is one step that never blocks. If the permits are free the call is
// admitted. If not, it takes a place in the queue; if no place is free either,
// somebody is refused at once: whom the shares name, or the newcomer.
//
// # Places
//
// The queue has a fixed number of places for all classes. Heavy calls have at most
// ceil(heavy*queue/concurrency) of them, so that a flood of heavy calls never
// makes the node refuse ordinary ones while it has permits for these. Compute
// calls may take every place that nobody else wants; a normal call that finds the
// queue full takes the place of a compute call as long as those have more than
// three quarters of it. The one that goes is the newest compute call of the client
// that has most of them waiting: of the only one, if there is one.
//
// # Fairness
//
// Waiting calls are served by fairQueue. While another client waits with calls of
// a class, one client takes no permit of it beyond fairCap of the limit, whatever
// its turn. Parked calls do not wait, so for them the cap always holds.
//
// # Limits that change
//
// Occupancy is counted, never derived from what is left. So a lower limit is a
// debt: holders finish, and nobody is admitted before occupancy is below it. A
// higher one admits waiters in the same step.
//
// # Invariants (each checked by TestGateModel after every step)
//
//   - A permit is given only below the limit in force.
//   - No call waits for permits that are all free.
//   - Each call that arrived is in exactly one of: executing, waiting, ended; the
//     books say which: arrived = served + failed + refused + cancelled when idle.
//   - A call past its bound is refused and never served.
//   - No sum of limits is ever formed, so that "unlimited" cannot wrap around.
//
// While nobody has to wait for a permit to execute, normal calls are admitted without
// the gate's lock: see fastPath.
//
// # Worked example
//
// concurrency 4, queue 8, cpu 2, heavy 1. Twelve heavy calls arrive: 1 runs,
// ceil(1*8/4) = 2 wait, 9 are refused; three execution permits stay free, and a
// normal call that arrives now runs at once.
//
// # Non-goals
//
// The gate does not know how long calls take, does not preempt, and does not
// adapt its limits. It knows nothing of HTTP, sockets or messages.
type gate struct {
	clock mclock.Clock
	wait  time.Duration
	dry   bool
	books [numClasses]classBook

	fast fastPath // counts the permits to execute of all classes

	mu        sync.Mutex
	limit     gateLimits
	held      permitCounts // by the calls in the gate's own books
	high      permitCounts // most that were held at once, but for those to execute
	highQ     int          // most calls that waited at once
	queue     fairQueue
	bounds    boundHeap // the waiting calls, the next to expire first
	timer     mclock.Timer
	timerAt   mclock.AbsTime // when timer fires; 0: not set
	places    shares         // of the queue, by client
	compute   shares         // the same of compute calls
	heavy     shares         // the same of heavy calls
	clients   map[clientKey]*gateClient
	known     linkedList[*gateClient] // all of them, see forgetLocked
	active    int                     // those of them that have calls
	running   linkedList[*gateCall]   // executing calls, but for those of the fast path
	seq       uint64
	quiet     int    // normal calls in a row that did not have to wait
	fastTook  uint64 // calls that the fast path took, without those in its word
	fastMoved uint64 // those of them that were moved to the books here
	fastEnded uint64 // those that ended there, but were not served

	reopenAfter int // see the constant, which tests replace
}

// gateConfig configures a gate.
type gateConfig struct {
	gateLimits
	Wait   time.Duration // longest wait for a permit, above 0
	DryRun bool          // refuse and delay nothing, count as if
}

// newGate returns a gate with the given limits, all permits free.
func newGate(cfg gateConfig, clock mclock.Clock) (*gate, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Wait <= 0 {
		return nil, fmt.Errorf("wait %v is out of range, want more than 0s", cfg.Wait)
	}
	g := &gate{
		clock:       clock,
		wait:        cfg.Wait,
		dry:         cfg.DryRun,
		limit:       cfg.gateLimits,
		clients:     make(map[clientKey]*gateClient),
		reopenAfter: reopenAfter,
	}
	if !g.dry {
		g.setBoundLocked(g.limit.Concurrency)
	}
	return g, nil
}

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

// acquire admits c, waiting if it must, or says why not. It counts the arrival and the
// refusal; end counts how an admitted call ended.
func (g *gate) acquire(ctx context.Context, c *gateCall) refusal {
	c.gate = g
	if c.class == classNormal && g.fastAdmit(c) {
		return admitted
	}
	book := &g.books[c.class]
	book.arrived.Add(1)
	if c.class == classLight {
		return admitted
	}
	wait, why := g.arrive(c)
	if wait {
		select {
		case <-c.ready:
		case <-ctx.Done():
			g.giveUp(c, whyDone(ctx))
			<-c.ready // decided now, by giveUp or by whoever was faster
		}
		// Whoever sent on c.ready is done with the record, so it can be read.
		if why = c.why; why == admitted && ctx.Err() != nil {
			// Admitted at the moment its client left: it must not run.
			c.releaseUncounted()
			why = whyDone(ctx)
		}
	}
	if why != admitted {
		book.refuse(why)
	}
	return why
}

// arrive is the one step of admission. It does not block. If wait is true, c.ready
// receives one value when the call has been admitted or refused, and c.why then says
// which.
func (g *gate) arrive(c *gateCall) (wait bool, why refusal) {
	c.gate, c.why, c.waited = g, admitted, 0
	g.mu.Lock()
	defer g.mu.Unlock()

	g.seq++
	c.seq = g.seq
	client := g.clientLocked(c.key)
	g.joinLocked(c, client) // first, so that the client is not forgotten when others join
	if g.fitsLocked(client, c.class) {
		g.grantLocked(c)
		if c.class == classNormal {
			g.openFastLocked()
		}
		return false, admitted
	}
	// Only here is the time needed. Reading it can cost as much as all the rest.
	now := c.since
	if now == 0 {
		now = g.clock.Now()
		c.since = now
	}
	if c.bound == 0 {
		c.bound = now.Add(g.wait)
	}
	why = refusedExpired // its batch may have waited before
	if c.bound > now {
		why = g.makeRoomLocked(client, c.class)
	}
	if why != admitted && !g.dry {
		g.leaveLocked(c)
		return false, why
	}
	if why != admitted {
		c.state = callOutside
		g.books[c.class].refuse(why)
		return false, admitted
	}
	g.enqueueLocked(c, now)
	if g.dry {
		return false, admitted
	}
	if c.ready == nil {
		c.ready = make(chan struct{}, 1)
	}
	return true, admitted
}

// fitsLocked reports whether a call of client may execute at once, and if so takes
// the permit to execute for it. Nobody is overtaken: when permits of a class are free,
// no call of it waits.
func (g *gate) fitsLocked(client *gateClient, class callClass) bool {
	if class == classParked && client.held[permitParked] >= fairCap(g.limit.Parked) {
		// Nobody waits for a parked permit, so nobody's waiting can tell that others
		// want one: the share kept for them is kept always.
		return false
	}
	return g.queue.rings[class].calls == 0 && g.limit.allow(class, &g.held) && g.takeExecLocked(class)
}

// takeExecLocked takes the permit to execute that a call of the class needs. Where it
// fails the fast path is closed, and every permit that is given back comes to the
// gate's lock.
func (g *gate) takeExecLocked(class callClass) bool {
	if class == classParked {
		return true
	}
	for !g.fast.take(g.limit.Concurrency) {
		if !g.closeFastLocked() {
			return false
		}
	}
	return true
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

// grantLocked gives c its permits, that to execute being taken already.
func (g *gate) grantLocked(c *gateCall) {
	c.client.held.add(c.class, 1)
	g.held.add(c.class, 1)
	if c.class != classNormal {
		for kind := permitCPU; kind < numPermits; kind++ {
			g.high[kind] = max(g.high[kind], g.held[kind])
		}
	}
	c.state = callRunning
	g.running.pushBack(&c.node)
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

// release ends a call that was served.
func (c *gateCall) release() { c.end(outcomeServed) }

// end gives the permits back and counts how the call ended. A second time it
// panics.
func (c *gateCall) end(o outcome) {
	g := c.gate
	if o == outcomeServed && c.unlist() {
		g.fastGive()
		return
	}
	if c.class == classLight {
		g.books[classLight].end(o)
		return
	}
	if c.class == classNormal { // no other is ever on the fast path
		g.mu.Lock()
		if c.unlist() {
			if o != outcomeServed {
				g.fastEnded++
				g.books[c.class].end(o)
			}
			g.fast.give()
			g.dispatchLocked()
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
	}
	if c.releaseUncounted() != callOutside { // those are counted as refused
		g.books[c.class].end(o)
	}
}

func (c *gateCall) releaseUncounted() callState {
	g := c.gate
	g.mu.Lock()
	state := c.state
	switch state {
	case callSpare:
		g.mu.Unlock()
		panic("rpc: admission permit released twice")
	case callRunning:
		g.running.remove(&c.node)
		c.client.held.add(c.class, -1)
		g.held.add(c.class, -1)
		if c.class != classParked {
			g.fast.give()
		}
	case callWaiting: // dry run: it executed all the while
		g.queue.remove(c)
		g.dequeueLocked(c)
	}
	g.leaveLocked(c)
	c.slot = nil
	g.dispatchLocked()
	g.mu.Unlock()
	return state
}

// limitChange names the limits to change; nil leaves one as it is.
type limitChange struct {
	Concurrency, Queue, CPU, Heavy, Parked *int
}

// setLimits changes the limits and returns what was in force before.
func (g *gate) setLimits(l gateLimits) (before gateLimits, err error) {
	before, _, err = g.changeLimits(limitChange{&l.Concurrency, &l.Queue, &l.CPU, &l.Heavy, &l.Parked})
	return before, err
}

// changeLimits is setLimits for those who change some of the limits in force, which
// nobody else must change in between. A change that makes no sense changes nothing.
func (g *gate) changeLimits(c limitChange) (before, after gateLimits, err error) {
	g.mu.Lock()
	before, after = g.limit, g.limit.with(c)
	valid := after.valid()
	if valid {
		g.limit = after
		if g.fast.isOpen() {
			g.setBoundLocked(after.Concurrency)
		}
		g.dispatchLocked()
	}
	g.mu.Unlock()

	if !valid {
		return before, before, after.validate()
	}
	return before, after, nil
}

// limits returns the limits in force.
func (g *gate) limits() gateLimits {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.limit
}
