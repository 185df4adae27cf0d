// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import "time"

// gateSnapshot is the state of a gate at one moment.
type gateSnapshot struct {
	limits  gateLimits
	held    permitCounts // executing calls by permit
	waiting [numClasses]int
	queued  int // waiting calls of all classes
	clients int // that execute or wait

	highHeld   permitCounts // most that were ever held
	highQueued int
}

// snapshot returns the state of the gate, all of it from the same moment.
func (g *gate) snapshot() gateSnapshot {
	g.mu.Lock()
	defer g.mu.Unlock()

	s := gateSnapshot{
		limits:     g.limit,
		held:       g.held,
		queued:     g.queue.total,
		clients:    len(g.clients) - g.idle.n,
		highHeld:   g.high,
		highQueued: g.highQ,
	}
	for class := range s.waiting {
		s.waiting[class] = g.queue.rings[class].calls
	}
	return s
}

// gateCallInfo describes a call that executes or waits.
type gateCallInfo struct {
	method  string
	class   callClass
	client  clientKey
	waiting bool
	age     time.Duration // since it arrived, 0 if nobody said when
}

// calls returns the executing calls in order of admission and then the waiting
// ones by client. Light calls are not among them: they are over too soon.
func (g *gate) calls() []gateCallInfo {
	now := g.clock.Now()

	g.mu.Lock()
	defer g.mu.Unlock()

	list := make([]gateCallInfo, 0, g.held[permitExec]+g.held[permitParked]+g.queue.total)
	add := func(c *gateCall, waiting bool) {
		info := gateCallInfo{method: c.method, class: c.class, client: c.client.key, waiting: waiting}
		if c.since != 0 {
			info.age = max(0, now.Sub(c.since))
		}
		list = append(list, info)
	}
	for c := g.running.first; c != nil; c = c.next {
		add(c, false)
	}
	for class := range g.queue.rings {
		for f := g.queue.rings[class].first; f != nil; f = f.next {
			for c := f.first; c != nil; c = c.next {
				add(c, true)
			}
		}
	}
	return list
}
