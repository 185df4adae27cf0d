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

	mu      sync.Mutex
	limit   gateLimits
	held    permitCounts
	high    permitCounts // most that were held at once
	highQ   int          // most calls that waited at once
	queue   fairQueue
	bounds  boundHeap // the waiting calls, the next to expire first
	timer   mclock.Timer
	timerAt mclock.AbsTime // when timer fires; 0: not set
	places  shares         // of the queue, by client
	compute shares         // the same of compute calls
	heavy   shares         // the same of heavy calls
	clients map[clientKey]*gateClient
	idle    clientList // those of clients without calls
	running callList   // executing calls, the oldest first
	spare   *gateCall  // records for reuse, linked by next
	spares  int
	seq     uint64
	closed  bool
}

// gateConfig configures a gate.
type gateConfig struct {
	gateLimits
	Wait   time.Duration // longest wait for a permit, above 0
	DryRun bool          // refuse and delay nothing, count as if
}

// gateRequest is a call that arrives.
type gateRequest struct {
	class  callClass
	key    clientKey
	method string         // of a known method, shown in the live dump
	now    mclock.AbsTime // when it arrived; 0: the gate reads the clock if it has to
	bound  mclock.AbsTime // when waiting ends; 0: the gate's longest wait from now
}

// permit is the right to execute. It must be released exactly once.
type permit struct {
	gate  *gate
	call  *gateCall // nil for light calls
	gen   uint64
	class callClass

	waited time.Duration // in the queue
}

// newGate returns a gate with the given limits, all permits free.
func newGate(cfg gateConfig, clock mclock.Clock) (*gate, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Wait <= 0 {
		return nil, fmt.Errorf("wait %v is out of range, want more than 0s", cfg.Wait)
	}
	return &gate{
		clock:   clock,
		wait:    cfg.Wait,
		dry:     cfg.DryRun,
		limit:   cfg.gateLimits,
		clients: make(map[clientKey]*gateClient),
	}, nil
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

// acquire admits r, waiting if it must, or says why not. It counts the arrival
// and the refusal; the permit's release counts how an admitted call ended.
func (g *gate) acquire(ctx context.Context, r gateRequest) (permit, refusal) {
	book := &g.books[r.class]
	book.arrived.Add(1)
	if r.class == classLight {
		return permit{gate: g, class: classLight}, admitted
	}
	c, why := g.arrive(&r)
	if why != admitted {
		book.refuse(why)
		return permit{}, why
	}
	p := permit{gate: g, call: c.call, gen: c.gen, class: r.class}
	if c.wait == nil {
		return p, admitted
	}
	select {
	case <-c.wait:
	case <-ctx.Done():
		g.giveUp(p, whyDone(ctx))
		<-c.wait // decided now, by giveUp or by whoever was faster
	}
	// Whoever sent on c.wait is done with the record, so it can be read.
	p.waited, why = c.call.waited, c.call.why
	switch {
	case why != admitted:
		g.mu.Lock()
		g.freeCallLocked(c.call)
		g.mu.Unlock()
	case ctx.Err() != nil:
		// Admitted at the moment its client left: it must not run.
		p.releaseUncounted()
		why = whyDone(ctx)
	default:
		return p, admitted
	}
	book.refuse(why)
	return permit{}, why
}

// arrival is the result of arrive. If wait is not nil it receives one value when
// the call has been admitted or refused, and the call's why then says which.
type arrival struct {
	call *gateCall
	gen  uint64
	wait chan struct{}
}

// arrive is the one step of admission. It does not block.
func (g *gate) arrive(r *gateRequest) (arrival, refusal) {
	now := r.now
	g.mu.Lock()
	defer g.mu.Unlock()

	if g.closed && !g.dry {
		return arrival{}, refusedShutdown
	}
	client := g.clientLocked(r.key)
	if g.fitsLocked(client, r.class) {
		c := g.newCallLocked(client, r, now)
		g.grantLocked(c)
		return arrival{call: c, gen: c.gen}, admitted
	}
	// Only here is the time needed. Reading it can cost as much as all the rest.
	if now == 0 {
		now = g.clock.Now()
	}
	bound := r.bound
	if bound == 0 {
		bound = now.Add(g.wait)
	}
	why := refusedExpired // its batch may have waited before
	if bound > now {
		why = g.makeRoomLocked(client, r.class)
	}
	if why != admitted {
		if !g.dry {
			return arrival{}, why
		}
		c := g.newCallLocked(client, r, now)
		c.state = callOutside
		g.books[r.class].refuse(why)
		return arrival{call: c, gen: c.gen}, admitted
	}
	c := g.newCallLocked(client, r, now)
	c.bound = bound
	g.enqueueLocked(c, now)
	if g.dry {
		return arrival{call: c, gen: c.gen}, admitted
	}
	if c.ready == nil {
		c.ready = make(chan struct{}, 1)
	}
	return arrival{call: c, gen: c.gen, wait: c.ready}, admitted
}

// fitsLocked reports whether a call of client may execute at once. Nobody is
// overtaken: when permits of a class are free, no call of it waits.
func (g *gate) fitsLocked(client *gateClient, class callClass) bool {
	if class == classParked && client.held[permitParked] >= fairCap(g.limit.Parked) {
		// Nobody waits for a parked permit, so nobody's waiting can tell that others
		// want one: the share kept for them is kept always.
		return false
	}
	return g.queue.rings[class].calls == 0 && g.limit.allow(class, &g.held)
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
			g.refuseLocked(g.clients[loser].flows[classHeavy].last, refusedDisplaced)
			return admitted
		}
	}
	if g.queue.total < g.limit.Queue {
		return admitted
	}
	if class == classNormal && moreThanThreeQuarters(waiting[classCompute].calls, g.limit.Queue) {
		greediest, _ := g.compute.greediest()
		g.refuseLocked(g.clients[greediest].flows[classCompute].last, refusedDisplaced)
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
	c.state, c.why = callSpare, why
	c.ready <- struct{}{} // never blocks: sent once for each use of the record
}

// grantLocked gives c its permits.
func (g *gate) grantLocked(c *gateCall) {
	g.held.add(c.class, 1)
	c.client.held.add(c.class, 1)
	for kind := range g.high {
		g.high[kind] = max(g.high[kind], g.held[kind])
	}
	c.state = callRunning
	g.running.append(c)
}

// dispatchLocked admits waiting calls until none can be.
func (g *gate) dispatchLocked() {
	now := g.clock.Now()
	for c := g.nextLocked(); c != nil; c = g.nextLocked() {
		if c.bound <= now {
			g.refuseLocked(c, refusedExpired) // the timer is late; a call must not be served late
			continue
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

// nextLocked returns the waiting call whose turn it is among those whose permits
// are free.
func (g *gate) nextLocked() *gateCall {
	var next *flow
	for class := range g.queue.rings {
		ring := &g.queue.rings[class]
		if ring.calls == 0 || !g.limit.allow(callClass(class), &g.held) {
			continue
		}
		f := ring.first
		for f != nil && g.cappedLocked(f, ring, callClass(class)) {
			f = f.next
		}
		// Two flows of one client may share a turn: then the older call goes first.
		if f != nil && (next == nil || f.turn < next.turn || f.turn == next.turn && f.first.seq < next.first.seq) {
			next = f
		}
	}
	if next == nil {
		return nil
	}
	return next.first
}

// cappedLocked reports whether the client of f must leave what is free to others
// that wait for the same class. At most two clients can be at the cap while a
// permit is free, unless the limit shrank, so the search past them is short. It
// never leaves a permit idle: for all waiting clients of a class to be at the cap
// all permits must be taken (TestGateModel, "no call waits for free permits").
func (g *gate) cappedLocked(f *flow, ring *flowRing, class callClass) bool {
	if ring.calls == f.calls {
		return false // nobody else waits
	}
	scarcest := scarcestPermit[class]
	return f.client.held[scarcest] >= fairCap(g.limit.of(scarcest))
}

// errServerStops is the cause with which a server that stops ends the contexts of its
// requests.
var errServerStops = errors.New("server is shutting down")

// whyDone tells a client that has left from a server that stops.
func whyDone(ctx context.Context) refusal {
	if errors.Is(context.Cause(ctx), errServerStops) {
		return refusedShutdown
	}
	return refusedGone
}

// giveUp ends the wait of a call whose context is done, unless it has ended.
func (g *gate) giveUp(p permit, why refusal) {
	g.mu.Lock()
	defer g.mu.Unlock()

	if c := p.call; c.gen == p.gen && c.state == callWaiting {
		g.refuseLocked(c, why)
	}
}

// release ends a call that was served.
func (p permit) release() { p.end(outcomeServed) }

// end gives the permits back and counts how the call ended. A second time it
// panics.
func (p permit) end(o outcome) {
	if p.call == nil {
		p.gate.books[p.class].end(o)
		return
	}
	if state := p.releaseUncounted(); state != callOutside { // those are counted as refused
		p.gate.books[p.class].end(o)
	}
}

func (p permit) releaseUncounted() callState {
	g, c := p.gate, p.call
	g.mu.Lock()
	if c.gen != p.gen || c.state == callSpare {
		g.mu.Unlock()
		panic("rpc: admission permit released twice")
	}
	state := c.state
	switch state {
	case callRunning:
		g.held.add(c.class, -1)
		c.client.held.add(c.class, -1)
		g.running.remove(c)
	case callWaiting: // dry run: it executed all the while
		g.queue.remove(c)
		g.dequeueLocked(c)
	}
	g.freeCallLocked(c)
	if g.queue.total > 0 {
		g.dispatchLocked()
	}
	g.mu.Unlock()
	return state
}

// close refuses all that wait and all that arrive from now on. Executing calls are
// not touched.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()

	g.closed = true
	if g.dry {
		return
	}
	for class := range g.queue.rings {
		for ring := &g.queue.rings[class]; ring.first != nil; {
			g.refuseLocked(ring.first.first, refusedShutdown)
		}
	}
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
