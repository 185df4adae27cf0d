// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"math/rand"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
)

// TestGateHammer runs the gate under everything at once; it is meant for -race.
func TestGateHammer(t *testing.T) {
	g, err := newGate(gateConfig{
		gateLimits: gateLimits{Concurrency: 8, Queue: 16, CPU: 4, Heavy: 2, Parked: 4},
		Wait:       20 * time.Millisecond,
	}, mclock.System{})
	if err != nil {
		t.Fatal(err)
	}
	g.reopenAfter = 5
	var (
		wg      sync.WaitGroup
		running atomic.Int64
		stop    = make(chan struct{})
	)
	for i := range 32 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rnd := rand.New(rand.NewSource(int64(i)))
			for range 400 {
				ctx, cancel := context.WithCancel(context.Background())
				if rnd.Intn(4) == 0 {
					go cancel()
				}
				class := callClass(rnd.Intn(int(numClasses)))
				p := &gateCall{class: class, key: rigKey(rnd.Intn(5)), method: "test_method"}
				why := g.acquire(ctx, p)
				if why == admitted {
					if class != classLight && class != classParked {
						if n := running.Add(1); n > 64 {
							t.Errorf("%d calls execute", n)
						}
						running.Add(-1)
					}
					p.end(outcome(rnd.Intn(3)))
				}
				cancel()
			}
		}()
	}
	go func() {
		defer close(stop)
		wg.Wait()
	}()
	for i := 0; ; i++ {
		select {
		case <-stop:
			s := g.snapshot()
			if s.held != (permitCounts{}) || s.queued != 0 || s.clients != 0 {
				t.Fatalf("left behind: %+v", s)
			}
			for class := range g.books {
				b := g.book(callClass(class))
				if b.Arrived != b.Served+b.Failed+b.Cancelled+b.refusedSum() {
					t.Errorf("%v: books do not add up: %+v", callClass(class), b)
				}
			}
			return
		default:
			g.setLimits(gateLimits{Concurrency: []int{64, 1}[i%2], Queue: 16, CPU: 4, Heavy: 2, Parked: 4})
			g.calls()
			g.snapshot()
		}
	}
}

// With one client for whom the queue is full of compute calls, normal calls still find
// places, and three quarters of the queue stay with compute.
func TestGateComputeGivesWayToNormal(t *testing.T) {
	r := newGateRig(t, gateLimits{1, 8, 1, 1, 1})
	for range 9 {
		r.arrive(0, classCompute, time.Hour)
	}
	for range 4 {
		r.arrive(1, classNormal, time.Hour)
	}
	r.settle()
	r.check()
	if s := r.g.snapshot(); s.waiting[classNormal] != 4 || s.waiting[classCompute] != 4 {
		t.Errorf("waiting: %v", s.waiting)
	}
}

// A permit released twice would be somebody else's. However the call was admitted, by the
// fast path, under the lock, or moved from one to the other, it panics.
func TestGateReleaseTwice(t *testing.T) {
	for name, test := range map[string]struct {
		class callClass
		moved bool
	}{"fast": {classNormal, false}, "moved": {classNormal, true}, "locked": {classHeavy, false}} {
		r := newGateRig(t, gateLimits{4, 1, 1, 1, 1})
		c := &gateCall{class: test.class}
		r.g.acquire(context.Background(), c)
		if test.moved {
			r.g.mu.Lock()
			r.g.closeFastLocked()
			r.g.mu.Unlock()
		}
		if (c.slot != nil) != (test.class == classNormal) || (c.client != nil) == (name == "fast") {
			t.Fatalf("%s: not admitted so: %+v", name, c)
		}
		c.release()
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			c.release()
		}()
		if s := r.g.snapshot(); s.held != (permitCounts{}) {
			t.Errorf("%s: left %+v", name, s)
		}
	}
}

// Clients that come once are forgotten, those that execute or wait are not.
func TestGateForgetsClients(t *testing.T) {
	r := newGateRig(t, gateLimits{1, 9, 1, 1, 1})
	r.arrive(0, classCompute, time.Hour)
	r.arrive(1, classCompute, time.Hour)
	for i := range 10 * idleClients {
		if why := r.g.acquire(context.Background(), &gateCall{class: classParked, key: rigKey(2 + i)}); why != admitted && why != refusedFull {
			t.Fatal(why)
		}
	}
	if r.g.clients[rigKey(0)] == nil || r.g.clients[rigKey(1)] == nil {
		t.Error("a client that executes or waits was forgotten")
	}
	if n := len(r.g.clients); n > 2*idleClients+3 || n != r.g.known.n || r.g.active != 3 {
		t.Errorf("%d clients known, %d listed, %d active", n, r.g.known.n, r.g.active)
	}
	// A newcomer whose arrival has a thousand others moved into the books is one of them.
	r = newGateRig(t, gateLimits{4 * idleClients, 9, 1, 1, 1})
	for i := range 4*idleClients + 1 {
		r.arrive(i, classNormal, time.Hour)
	}
	if n := len(r.g.clients); n != 4*idleClients+1 || r.g.active != n {
		t.Errorf("%d clients known, %d active", n, r.g.active)
	}
	r.g.snapshot()
	r.calls[0].call.release()
	<-r.calls[4*idleClients].call.ready
	if why := r.calls[4*idleClients].call.why; why != admitted {
		t.Errorf("the waiter was forgotten: %v", why)
	}
}
