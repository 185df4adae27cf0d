// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
)

// The tests below are named after mistakes that others made.

// A waiter that registers after it has looked for capacity misses the permit that is
// freed in between, and waits until some unrelated call ends.
func TestTrapCapacityCheckedBeforeTheWaiterIsRegistered(t *testing.T) {
	g, err := newGate(gateConfig{gateLimits: gateLimits{1, 1 << 20, 1, 1, 1}, Wait: time.Minute}, mclock.System{})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 2000 {
				p := &gateCall{class: classNormal, key: rigKey(i)}
				why := g.acquire(context.Background(), p)
				if why != admitted {
					t.Error(why)
					return
				}
				p.release()
			}
		}()
	}
	wg.Wait() // hangs for a minute if a wake-up is lost
}

func TestTrapRaisingALimitWakesNobody(t *testing.T) {
	r := newGateRig(t, gateLimits{1, 9, 1, 1, 1})
	for range 5 {
		r.arrive(0, classNormal, time.Hour)
	}
	r.g.setLimits(gateLimits{4, 9, 1, 1, 1})
	r.m.limit = gateLimits{4, 9, 1, 1, 1}
	r.m.dispatch()
	r.settle()
	r.check()
	if s := r.g.snapshot(); s.held[permitExec] != 4 || s.queued != 1 {
		t.Errorf("%+v", s)
	}
}

// Shrinking is a debt: whether a holder ends before or after it, nobody is admitted over
// the limit and no permit is lost.
func TestTrapShrinkAndReleaseRace(t *testing.T) {
	for range 200 {
		g, err := newGate(gateConfig{gateLimits: gateLimits{4, 9, 1, 1, 1}, Wait: time.Minute}, mclock.System{})
		if err != nil {
			t.Fatal(err)
		}
		var held []*gateCall
		for range 4 {
			p := &gateCall{class: classNormal}
			g.acquire(context.Background(), p)
			held = append(held, p)
		}
		var wg sync.WaitGroup
		for _, p := range held[:3] {
			wg.Add(1)
			go func() { defer wg.Done(); p.release() }()
		}
		g.setLimits(gateLimits{2, 9, 1, 1, 1})
		wg.Wait()
		if s := g.snapshot(); s.held[permitExec] != 1 {
			t.Fatalf("%d held, one has not ended", s.held[permitExec])
		}
		p := &gateCall{class: classNormal}
		if why := g.acquire(context.Background(), p); why != admitted {
			t.Fatal(why)
		}
		p.release()
		held[3].release()
		if s := g.snapshot(); s.held != (permitCounts{}) || s.highHeld[permitExec] > 4 {
			t.Fatalf("%+v", s)
		}
	}
}

func TestTrapOccupancyComputedFromTheLimit(t *testing.T) {
	r := newGateRig(t, gateLimits{4, 9, 1, 1, 1})
	for range 4 {
		r.arrive(0, classNormal, time.Hour)
	}
	r.g.setLimits(gateLimits{1, 9, 1, 1, 1})
	if s := r.g.snapshot(); s.held[permitExec] != 4 || s.limits.Concurrency != 1 {
		t.Errorf("%+v", s)
	}
}

func TestTrapWaiterPastItsBoundIsServedLate(t *testing.T) {
	clock := new(mclock.Simulated)
	clock.Run(time.Second)
	late := lateClock{clock}
	g, err := newGate(gateConfig{gateLimits: gateLimits{1, 9, 1, 1, 1}, Wait: 5 * time.Second}, late)
	if err != nil {
		t.Fatal(err)
	}
	a, b := &gateCall{class: classNormal}, &gateCall{class: classNormal}
	g.arrive(a)
	g.arrive(b)
	clock.Run(5 * time.Second) // no timer fires
	a.release()
	<-b.ready
	if b.why != refusedExpired {
		t.Errorf("served after %v: %v", 5*time.Second, b.why)
	}
}

// lateClock is a clock whose timers are as late as they can be.
type lateClock struct{ *mclock.Simulated }

func (c lateClock) AfterFunc(time.Duration, func()) mclock.Timer {
	return c.Simulated.AfterFunc(time.Hour, func() {})
}

func TestTrapSumsOverflowWhenUnlimited(t *testing.T) {
	const unlimited = int(^uint(0) >> 1)
	r := newGateRig(t, gateLimits{1, unlimited, unlimited, unlimited, unlimited})
	for range 50 {
		r.arrive(0, classNormal, time.Hour)
		r.arrive(1, classHeavy, time.Hour)
	}
	if s := r.g.snapshot(); s.held[permitExec] != 1 || s.queued != 99 {
		t.Errorf("refused by an unlimited queue: %+v", s)
	}
	r.g.setLimits(gateLimits{unlimited, unlimited, unlimited, unlimited, unlimited})
	if s := r.g.snapshot(); s.held[permitExec] != 100 || s.queued != 0 {
		t.Errorf("refused by an unlimited gate: %+v", s)
	}
	if moreThanThreeQuarters(unlimited/2, unlimited) || !moreThanThreeQuarters(unlimited-unlimited/8, unlimited) {
		t.Error("three quarters of an unlimited queue are something else")
	}
}

// A newcomer with nothing must not throw out one of many who hold one place each: that
// one would come back and do the same to the next.
func TestTrapEqualsThrowEachOtherOut(t *testing.T) {
	r := newGateRig(t, gateLimits{1, 4, 1, 1, 1})
	for client := range 5 {
		r.arrive(client, classNormal, time.Hour)
	}
	r.arrive(5, classNormal, time.Hour)
	r.settle()
	if got := r.calls[5].state; got != "full" {
		t.Errorf("the sixth client: %s", got)
	}
	for _, c := range r.calls[1:5] {
		if c.state != "waiting" {
			t.Errorf("client %d of equals: %s", c.model.client, c.state)
		}
	}
	// A client with three of four places gives one up, and a second only to a client
	// that then has no more than it keeps.
	r = newGateRig(t, gateLimits{1, 4, 1, 1, 1})
	for range 5 {
		r.arrive(0, classNormal, time.Hour)
	}
	for range 4 {
		r.arrive(1, classNormal, time.Hour)
	}
	r.settle()
	r.check()
	if got := r.g.places.held(rigKey(0)) + r.g.places.held(rigKey(1)); got != 0 {
		t.Errorf("places are counted twice: %d", got)
	}
	var states []string
	for _, c := range r.m.calls {
		if c.state == "waiting" {
			states = append(states, fmt.Sprint(c.client))
		}
	}
	if got := fmt.Sprint(states); got != "[0 0 1 1]" {
		t.Errorf("places of the queue by client: %s", got)
	}
}

// Two long traces of one client may hold every heavy permit while nobody else wants one.
// When one ends while another client waits, that client is next, and the first one does
// not get both again for as long as anybody waits.
func TestTrapTwoLongTracesOfOneClient(t *testing.T) {
	r := newGateRig(t, gateLimits{8, 64, 4, 2, 1})
	for range 8 {
		r.arrive(0, classHeavy, time.Hour)
	}
	for range 3 {
		r.arrive(1, classHeavy, time.Hour)
	}
	heldBy := func(client int) int { return r.m.held(permitHeavy, client) }
	for range 3 {
		for _, c := range r.calls {
			if c.state == "running" && c.model.client == 0 && heldBy(0) == 2 || c.state == "running" && c.model.client == 1 {
				c.state, c.model.state = "ended", "ended"
				r.served++
				c.call.release()
				r.m.dispatch()
				break
			}
		}
		r.settle()
		r.check()
		if r.m.count("waiting", func(c *modelCall) bool { return c.client == 1 }) > 0 && (heldBy(0) != 1 || heldBy(1) != 1) {
			t.Fatalf("the first client holds %d, the second %d", heldBy(0), heldBy(1))
		}
	}
}

// A limit of 0 would refuse everything, the call that could raise it included. It is
// refused as a change, and what was in force stays in force.
func TestTrapZeroConcurrencyAccepted(t *testing.T) {
	ok := gateLimits{1, 0, 1, 1, 1}
	for _, l := range []gateLimits{{0, 0, 1, 1, 1}, {1, -1, 1, 1, 1}, {1, 0, 0, 1, 1}, {1, 0, 1, 0, 1}, {1, 0, 1, 1, 0}} {
		if _, err := newGate(gateConfig{gateLimits: l, Wait: time.Second}, mclock.System{}); err == nil {
			t.Errorf("%+v accepted", l)
		}
	}
	if _, err := newGate(gateConfig{gateLimits: ok}, mclock.System{}); err == nil {
		t.Error("no wait accepted")
	}
	g, _ := newGate(gateConfig{gateLimits: ok, Wait: time.Second}, mclock.System{})
	if before, err := g.setLimits(gateLimits{0, 0, 1, 1, 1}); err == nil || before != ok || g.limits() != ok {
		t.Errorf("a refused change left %+v", g.limits())
	}
	if c := (&gateCall{class: classNormal}); g.acquire(context.Background(), c) != admitted {
		t.Error("nobody is admitted any more")
	}
}
