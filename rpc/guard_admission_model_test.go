// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"fmt"
	"math/rand"
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
