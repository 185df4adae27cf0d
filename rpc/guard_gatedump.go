// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"cmp"
	"slices"
	"time"
)

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

// snapshot returns the state of the gate, all of it from the same moment, but for
// normal calls that come and go by the fast path meanwhile.
func (g *gate) snapshot() gateSnapshot {
	g.mu.Lock()
	defer g.mu.Unlock()

	s := gateSnapshot{
		limits:     g.limit,
		held:       g.held,
		queued:     g.queue.total,
		clients:    g.active,
		highHeld:   g.high,
		highQueued: g.highQ,
	}
	s.held[permitExec] = g.fast.held()
	s.highHeld[permitExec] = int(g.fast.high.Load())
	others := make(map[clientKey]struct{})
	g.fast.each(func(c *gateCall) {
		if client := g.clients[c.key]; client == nil || client.calls == 0 {
			others[c.key] = struct{}{}
		}
	})
	s.clients += len(others)
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

// calls returns the executing calls, the oldest first, and then the waiting ones by
// client. Light calls are not among them: they are over too soon.
func (g *gate) calls() []gateCallInfo {
	now := g.clock.Now()

	g.mu.Lock()
	defer g.mu.Unlock()

	var list []gateCallInfo
	add := func(c *gateCall, client clientKey, waiting bool) {
		info := gateCallInfo{method: c.method, class: c.class, client: client, waiting: waiting}
		if c.since != 0 {
			info.age = max(0, now.Sub(c.since))
		}
		list = append(list, info)
	}
	g.fast.each(func(c *gateCall) { add(c, c.key, false) })
	for n := g.running.first; n != nil; n = n.next {
		add(n.of, n.of.client.key, false)
	}
	slices.SortStableFunc(list, func(a, b gateCallInfo) int { return cmp.Compare(b.age, a.age) })
	for class := range g.queue.rings {
		for f := g.queue.rings[class].flows.first; f != nil; f = f.next {
			for c := f.of.calls.first; c != nil; c = c.next {
				add(c.of, c.of.client.key, true)
			}
		}
	}
	return list
}
