// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"math/rand"
	"slices"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
)

// rigCall pairs a call at the gate with the one in the model.
type rigCall struct {
	model *modelCall
	call  gateCall
	state string
}

// gateRig drives a gate and the model side by side, in one goroutine.
type gateRig struct {
	t     *testing.T
	g     *gate
	clock *mclock.Simulated
	m     *modelGate
	calls []*rigCall
	trace []string

	arrived, served, refused, cancelled uint64
	fast                                int // of those that arrived, admitted without the lock
}

func newGateRig(t *testing.T, limits gateLimits) *gateRig {
	clock := new(mclock.Simulated)
	clock.Run(time.Second) // AbsTime 0 means "not given"
	g, err := newGate(gateConfig{gateLimits: limits, Wait: 5 * time.Second}, clock)
	if err != nil {
		t.Fatal(err)
	}
	g.reopenAfter = 3 // so that the fast path opens and closes all the time
	return &gateRig{t: t, g: g, clock: clock,
		m: &modelGate{limit: limits, now: clock.Now(), turn: make(map[[2]int]int), since: make(map[[2]int]int)}}
}

func (r *gateRig) arrive(client int, class callClass, wait time.Duration) {
	c := &rigCall{model: &modelCall{client: client, class: class, bound: r.clock.Now().Add(wait)}, state: "running"}
	r.m.arrive(c.model)
	r.m.dispatch()
	r.calls = append(r.calls, c)
	r.arrived++
	c.call = gateCall{gate: r.g, class: class, key: rigKey(client), bound: c.model.bound}
	if class == classNormal && r.g.fastAdmit(&c.call) {
		r.fast++
		return
	}
	r.g.books[class].arrived.Add(1)
	waits, why := r.g.arrive(&c.call)
	switch {
	case why != admitted:
		c.state = why.String()
		r.g.books[class].refuse(why)
		r.refused++
	case waits:
		c.state = "waiting"
	}
}

func rigKey(client int) clientKey { return clientKey{lo: uint64(client) + 1, kind: uint64(keyAddr)} }

// settle takes notice of the waits that have ended.
func (r *gateRig) settle() {
	for _, c := range r.calls {
		if c.state != "waiting" {
			continue
		}
		select {
		case <-c.call.ready:
		default:
			continue
		}
		if c.state = "running"; c.call.why != admitted {
			c.state = c.call.why.String()
			if c.call.why == refusedGone {
				r.cancelled++
			} else {
				r.refused++
			}
			r.g.books[c.call.class].refuse(c.call.why)
		}
	}
}

// pick returns a random call in the given state, nil if there is none.
func (r *gateRig) pick(rnd *rand.Rand, state string) *rigCall {
	var in []*rigCall
	for _, c := range r.calls {
		if c.state == state {
			in = append(in, c)
		}
	}
	if len(in) == 0 {
		return nil
	}
	return in[rnd.Intn(len(in))]
}

// check compares the gate with the model and then with the invariants.
func (r *gateRig) check() {
	r.t.Helper()
	fail := func(format string, args ...any) {
		r.t.Helper()
		for _, line := range r.trace[max(0, len(r.trace)-40):] {
			r.t.Log(line)
		}
		r.t.Fatalf(format, args...)
	}
	live := r.calls[:0]
	for _, c := range r.calls {
		if c.state != c.model.state {
			fail("client %d %v: %s, in the model %s", c.model.client, c.model.class, c.state, c.model.state)
		}
		if c.state == "running" || c.state == "waiting" {
			live = append(live, c)
		}
	}
	r.calls = live
	r.m.calls = slices.DeleteFunc(r.m.calls, func(c *modelCall) bool {
		return c.state != "running" && c.state != "waiting"
	})

	s := r.g.snapshot()
	for kind := range s.held {
		if want := r.m.held(permitKind(kind), -1); s.held[kind] != want {
			fail("permits of kind %d: %d held, %d in the model", kind, s.held[kind], want)
		}
	}
	// Nobody waits for a permit to execute unless all is done under the lock.
	if s.waiting[classNormal] > 0 && r.g.fast.isOpen() {
		fail("the fast path is open while %d normal calls wait", s.waiting[classNormal])
	}
	if !r.g.fast.isOpen() {
		r.g.fast.each(func(*gateCall) { fail("the fast path is closed and lists a call") })
	}
	for _, client := range r.g.clients {
		if key := client.key; !r.g.fast.isOpen() && client.held[permitExec] != r.m.held(permitExec, int(key.lo)-1) {
			fail("client %d holds %d permits, in the model %d", key.lo-1, client.held[permitExec], r.m.held(permitExec, int(key.lo)-1))
		}
	}
	clients := make(map[int]bool)
	waiting := 0
	for _, c := range r.calls {
		clients[c.model.client] = true
		if c.state != "waiting" {
			continue
		}
		waiting++
		if c.model.bound <= r.clock.Now() {
			fail("a call waits beyond its bound")
		}
		others := r.m.count("waiting", func(o *modelCall) bool {
			return o.class == c.model.class && o.client != c.model.client
		})
		if r.m.free(c.model.class) {
			fail("a call waits for permits that are all free (%d others wait)", others)
		}
	}
	if s.queued != waiting || s.clients != len(clients) {
		fail("%d waiting of %d clients, in the model %d of %d", s.queued, s.clients, waiting, len(clients))
	}
	if got := len(r.g.calls()); got != len(r.calls) {
		fail("%d calls in the dump, want %d", got, len(r.calls))
	}
	var arrived, ended uint64
	for class := range r.g.books {
		b := r.g.book(callClass(class))
		arrived += b.Arrived
		ended += b.Served + b.Failed + b.Cancelled + b.refusedSum()
	}
	if arrived != r.arrived || ended != r.served+r.refused+r.cancelled || arrived != ended+uint64(len(r.calls)) {
		fail("books: %d arrived, %d ended, %d live", arrived, ended, len(r.calls))
	}
}
