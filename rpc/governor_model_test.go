// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"errors"
	"math/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// governorModel is the governor as one would write it without caring for speed: it looks
// at everything once a millisecond. The rate is 1000/s, so that each millisecond is a
// whole token and nothing is ever rounded.
type governorModel struct {
	burst, floor, maxQueue, places int

	tokens, turn, pause, now int
	queues                   [numGovernorClasses][]*governorModelCall
}

type governorModelCall struct {
	class           GovernorClass
	cost, missing   int
	sent, displaced bool
}

func (m *governorModel) portion(c *governorModelCall) int {
	limit := m.burst
	if c.class == Background {
		limit -= m.floor
	}
	return min(c.missing, limit)
}

func (m *governorModel) due() bool {
	bg := m.queues[Background]
	return len(bg) > 0 && m.turn >= backgroundTurn*m.portion(bg[0])
}

// settle sends what can be sent.
func (m *governorModel) settle() {
	for m.now >= m.pause {
		fg, bg := m.queues[Foreground], m.queues[Background]
		var c *governorModelCall
		floor := 0
		switch {
		case m.due():
			c = bg[0]
		case len(fg) > 0:
			c = fg[0]
		case len(bg) > 0:
			c, floor = bg[0], m.floor
		default:
			return
		}
		n := m.portion(c)
		if m.tokens < floor+n {
			return
		}
		m.tokens -= n
		if c.class == Background {
			m.turn = 0
		} else if len(bg) > 0 {
			m.turn += n
		}
		if c.missing -= n; c.missing == 0 {
			c.sent = true
			m.remove(c)
		}
	}
}

func (m *governorModel) remove(c *governorModelCall) {
	q := m.queues[c.class]
	for i := range q {
		if q[i] == c {
			m.queues[c.class] = append(q[:i:i], q[i+1:]...)
			break
		}
	}
	if len(m.queues[Background]) == 0 {
		m.turn = 0
	}
}

// arrive returns nil if the call is refused. A call may use a place for no time at all
// if it can be sent, even if there is none.
func (m *governorModel) arrive(class GovernorClass, cost int) *governorModelCall {
	c := &governorModelCall{class: class, cost: cost, missing: cost}
	before := len(m.queues[Foreground]) + len(m.queues[Background])
	limit, floor := m.maxQueue, 0
	if class == Background {
		limit, floor = m.places, m.floor
	}
	direct := len(m.queues[class]) == 0 && cost <= m.burst-floor && m.now >= m.pause && m.tokens >= floor+cost &&
		!m.due() && (class == Foreground || before == 0)
	switch {
	case direct:
	case len(m.queues[class]) >= limit:
		return nil
	case before >= m.maxQueue:
		bg := m.queues[Background]
		if class == Background || len(bg) < 2 {
			return nil
		}
		last := bg[len(bg)-1]
		last.displaced = true
		m.remove(last)
	}
	m.queues[class] = append(m.queues[class], c)
	m.settle()
	return c
}

func (m *governorModel) tick() {
	m.now++
	m.tokens = min(m.burst, m.tokens+1)
	m.settle()
}

// TestGovernorModel runs random operations against the model and compares who was sent,
// refused, displaced and who waits, after each of them.
func TestGovernorModel(t *testing.T) {
	for seed := int64(1); seed <= 25; seed++ {
		runGovernorModel(t, seed, 1000)
	}
}

func FuzzGovernorModel(f *testing.F) {
	f.Add(int64(1))
	f.Fuzz(func(t *testing.T, seed int64) { runGovernorModel(t, seed, 300) })
}

func runGovernorModel(t *testing.T, seed int64, steps int) {
	var (
		r   = rand.New(rand.NewSource(seed))
		cfg = GovernorConfig{
			Rate:              1000,
			Burst:             1 + r.Intn(20),
			ForegroundReserve: r.Intn(100),
			MaxQueue:          r.Intn(30),
			Backoff:           8 * time.Millisecond,
			MaxPause:          40 * time.Millisecond,
		}
		g, clock = simGovernor(t, cfg)
		m        = &governorModel{
			burst:    cfg.Burst,
			tokens:   cfg.Burst,
			floor:    g.classes[Background].floor,
			maxQueue: cfg.MaxQueue,
			places:   g.classes[Background].places,
		}
		waiting  = make(map[*governorWaiter]*governorModelCall)
		dropped  uint64 // left on their own
		arrivals uint64
		refusals uint64
	)
	for step := 0; step < steps; step++ {
		switch op := r.Intn(100); {
		case op < 45: // a call
			class, cost := GovernorClass(r.Intn(2)), 1
			if r.Intn(4) == 0 {
				cost = 1 + r.Intn(2*cfg.Burst+2)
			}
			arrivals++
			fgWaiting := len(m.queues[Foreground])
			c := m.arrive(class, cost)
			w, _, err := g.enter(context.Background(), class, cost)
			require.Equal(t, c == nil, err != nil, "seed %d step %d: %v %d", seed, step, class, cost)
			if err != nil {
				refusals++
				require.True(t, errors.Is(err, ErrLocalCapacity))
				if class == Foreground {
					require.GreaterOrEqual(t, fgWaiting, cfg.MaxQueue-1, "refused because of the background")
				}
			} else if w == nil {
				require.True(t, c.sent, "seed %d step %d", seed, step)
			} else {
				waiting[w] = c
			}
		case op < 50: // a caller leaves
			for _, class := range []GovernorClass{Foreground, Background} {
				q := m.queues[class]
				if len(q) == 0 || r.Intn(2) == 0 {
					continue
				}
				gone := q[r.Intn(len(q))]
				for w, c := range waiting {
					if c == gone {
						delete(waiting, w)
						m.remove(c)
						m.settle()
						g.leave(w)
						dropped++
					}
				}
			}
		case op < 52: // an overloaded answer
			d := 1 + r.Intn(30)
			m.pause = max(m.pause, m.now+d)
			g.overloaded(g.pause.epoch, time.Duration(d)*time.Millisecond)
		default:
			clock.Run(time.Millisecond)
			m.tick()
		}
		for w, c := range waiting {
			want := governorWaiting
			if c.sent {
				want = governorGranted
			} else if c.displaced {
				want = governorDisplaced
			}
			require.Equal(t, want, outcomeOf(g, w), "seed %d step %d: %+v", seed, step, c)
			if want != governorWaiting {
				delete(waiting, w)
			}
		}
		s := g.Stats()
		require.InDelta(t, m.tokens, s.Tokens, 1e-3, "seed %d step %d", seed, step)
		require.Equal(t, len(waiting), s.Foreground.Waiting+s.Background.Waiting)
		require.LessOrEqual(t, len(waiting), cfg.MaxQueue)
		checkGovernorBooks(t, g)
	}
	s := g.Stats()
	require.Equal(t, arrivals, s.Foreground.Arrived+s.Background.Arrived)
	require.Equal(t, refusals+s.Background.Displaced, s.Foreground.Refused+s.Background.Refused)
	require.Equal(t, dropped, s.Foreground.Cancelled+s.Background.Cancelled)
	g.Close()
	require.Zero(t, clock.ActiveTimers())
}
