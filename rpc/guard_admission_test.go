// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"fmt"
	"math/rand"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
)

// modelGate is the obvious gate: a list of calls, searched from end to end for
// every decision. It knows of no records, rings or heaps.
type modelGate struct {
	limit gateLimits
	now   mclock.AbsTime
	calls []*modelCall   // waiting and running, in order of arrival
	turn  map[[2]int]int // by client and class
	since map[[2]int]int // when the client took its first place
	turns int
}

type modelCall struct {
	client int
	class  callClass
	bound  mclock.AbsTime
	state  string // running, waiting or the reason of a refusal
}

func (m *modelGate) count(state string, match func(*modelCall) bool) (n int) {
	for _, c := range m.calls {
		if c.state == state && match(c) {
			n++
		}
	}
	return n
}

func (m *modelGate) held(kind permitKind, client int) int {
	return m.count("running", func(c *modelCall) bool {
		var p permitCounts
		p.add(c.class, 1)
		return p[kind] > 0 && (client < 0 || c.client == client)
	})
}

func (m *modelGate) free(class callClass) bool {
	var need permitCounts
	need.add(class, 1)
	for kind, n := range need {
		if n > 0 && m.held(permitKind(kind), -1) >= m.limit.of(permitKind(kind)) {
			return false
		}
	}
	return true
}

func (m *modelGate) arrive(c *modelCall) {
	waiting := func(class callClass, client int) int {
		return m.count("waiting", func(o *modelCall) bool {
			return (class == numClasses || o.class == class) && (client < 0 || o.client == client)
		})
	}
	// newestOf returns the last call of whoever has most places of a class, if that
	// leaves it with at least spare. Of equals the one with places for longest goes.
	newestOf := func(class callClass, spare int) (newest *modelCall) {
		most, since := 0, 0
		for _, o := range m.calls {
			if o.state != "waiting" || class != numClasses && o.class != class {
				continue
			}
			n, s := waiting(class, o.client), m.since[[2]int{o.client, int(class)}]
			if newest == nil || n > most || n == most && s <= since {
				most, since, newest = n, s, o // the last one of its client in the end
			}
		}
		if most-1 < spare {
			return nil
		}
		return newest
	}
	places := (m.limit.heavyMax()*m.limit.Queue + m.limit.Concurrency - 1) / m.limit.Concurrency
	var victim *modelCall
	c.state = "waiting"
	switch {
	case m.free(c.class) && waiting(c.class, -1) == 0 &&
		(c.class != classParked || m.held(permitParked, c.client) < fairCap(m.limit.Parked)):
		c.state = "running"
	case c.bound <= m.now:
		c.state = "expired"
	case c.class == classParked || waiting(numClasses, -1) > m.limit.Queue,
		c.class == classHeavy && waiting(classHeavy, -1) > places:
		c.state = "full"
	case c.class == classHeavy && waiting(classHeavy, -1) == places:
		victim = newestOf(classHeavy, waiting(classHeavy, c.client)+1)
		if victim == nil {
			c.state = "full"
		}
	case waiting(numClasses, -1) < m.limit.Queue:
	case c.class == classNormal && 4*waiting(classCompute, -1) > 3*m.limit.Queue:
		victim = newestOf(classCompute, 0)
	default:
		if victim = newestOf(numClasses, waiting(numClasses, c.client)+1); victim == nil {
			c.state = "full"
		}
	}
	if victim != nil {
		victim.state = "displaced"
	}
	if c.state == "waiting" {
		m.turns++
		flow, all := [2]int{c.client, int(c.class)}, [2]int{c.client, int(numClasses)}
		if waiting(c.class, c.client) == 0 {
			m.turn[flow], m.since[flow] = m.turns, m.turns
		}
		if waiting(numClasses, c.client) == 0 {
			m.since[all] = m.turns
		}
	}
	m.calls = append(m.calls, c)
}

func (l gateLimits) heavyMax() int { return min(l.Heavy, l.CPU, l.Concurrency) }

func (m *modelGate) dispatch() {
	for {
		var next *modelCall
		seen := make(map[[2]int]bool)
		for _, c := range m.calls {
			flow := [2]int{c.client, int(c.class)}
			if c.state != "waiting" || seen[flow] {
				continue
			}
			seen[flow] = true
			others := m.count("waiting", func(o *modelCall) bool { return o.class == c.class && o.client != c.client })
			kind := scarcestPermit[c.class]
			if !m.free(c.class) || others > 0 && m.held(kind, c.client) >= fairCap(m.limit.of(kind)) {
				continue
			}
			if next == nil || m.turn[flow] < m.turn[[2]int{next.client, int(next.class)}] {
				next = c
			}
		}
		if next == nil {
			return
		}
		next.state = "running"
		m.turns++
		for class := range numClasses {
			m.turn[[2]int{next.client, int(class)}] = m.turns
		}
	}
}

func (m *modelGate) expire() {
	for _, c := range m.calls {
		if c.state == "waiting" && c.bound <= m.now {
			c.state = "expired"
		}
	}
}

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

// TestGateModel drives random arrivals, departures, ends, changes of limits and
// time against the model and looks at every invariant after each step.
func TestGateModel(t *testing.T) {
	const seed = 20240607
	runs, steps, fast, closings := 300, 250, 0, 0
	if testing.Short() {
		runs = 40
	}
	for run := range runs {
		rnd := rand.New(rand.NewSource(seed + int64(run)))
		limits := func() gateLimits {
			return gateLimits{1 + rnd.Intn(6), rnd.Intn(9), 1 + rnd.Intn(4), 1 + rnd.Intn(3), 1 + rnd.Intn(5)}
		}
		r := newGateRig(t, limits())
		r.trace = append(r.trace, fmt.Sprintf("seed %d, limits %+v", seed+run, r.m.limit))
		raised, wasOpen := r.m.limit, true
		busy := 5 + rnd.Intn(5) // of 20 steps that many bring a call
		for range steps {
			switch op := rnd.Intn(20); {
			case op < busy:
				class := []callClass{classNormal, classNormal, classCompute, classHeavy, classParked}[rnd.Intn(5)]
				client, wait := rnd.Intn(1+rnd.Intn(4)), time.Duration(rnd.Intn(6))*time.Second
				r.trace = append(r.trace, fmt.Sprintf("client %d arrives, %v, may wait %v", client, class, wait))
				r.arrive(client, class, wait)
			case op < 15:
				if c := r.pick(rnd, "running"); c != nil {
					r.trace = append(r.trace, fmt.Sprintf("client %d ends, %v", c.model.client, c.model.class))
					c.state, c.model.state = "ended", "ended"
					r.served++
					c.call.release()
					r.m.dispatch()
				}
			case op < 17:
				if c := r.pick(rnd, "waiting"); c != nil {
					r.trace = append(r.trace, fmt.Sprintf("client %d leaves, %v", c.model.client, c.model.class))
					c.model.state = "gone"
					r.g.giveUp(&c.call, refusedGone)
				}
			case op < 19:
				d := time.Duration(1+rnd.Intn(2000)) * time.Millisecond
				r.trace = append(r.trace, fmt.Sprintf("%v pass", d))
				r.clock.Run(d)
				r.m.now = r.clock.Now()
				r.m.expire()
			default:
				l := limits()
				r.trace = append(r.trace, fmt.Sprintf("limits %+v", l))
				if _, err := r.g.setLimits(l); err != nil {
					t.Fatal(err)
				}
				r.m.limit = l
				r.m.dispatch()
				raised = gateLimits{max(raised.Concurrency, l.Concurrency), max(raised.Queue, l.Queue),
					max(raised.CPU, l.CPU), max(raised.Heavy, l.Heavy), max(raised.Parked, l.Parked)}
			}
			r.settle()
			r.check()
			if open := r.g.fast.isOpen(); wasOpen && !open {
				closings++
			}
			wasOpen = r.g.fast.isOpen()
		}
		fast += r.fast
		if high := r.g.snapshot().highHeld; high[permitExec] > raised.Concurrency || high[permitCPU] > raised.CPU ||
			high[permitHeavy] > raised.Heavy || high[permitParked] > raised.Parked {
			t.Fatalf("seed %d: %v permits were held at once, limits never above %+v", seed+run, high, raised)
		}
	}
	if fast < 10*runs || closings < 2*runs {
		t.Errorf("%d calls by the fast path, which was closed %d times: too few to mean anything", fast, closings)
	}
}

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
