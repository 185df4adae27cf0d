// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
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
