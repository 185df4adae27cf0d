// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// budgetModel is the budget said once more in the plainest way: sums over a
// slice, victims by scanning.
type budgetModel struct {
	limit, largeLimit, small int64
	live                     []*modelCharge // in the order of their last growth
}

type modelCharge struct {
	key       int
	held      int64
	pinned    bool
	displaced bool
	rate      int64 // what its client takes a second; 0: unknown
	unpaced   bool  // and stays so
}

func (m *budgetModel) sums(except *modelCharge) (total, large int64, by map[int]int64) {
	by = make(map[int]int64)
	for _, c := range m.live {
		if c == except {
			continue
		}
		total += c.held
		by[c.key] += c.held
		if c.held > m.small {
			large += c.held
		}
	}
	return
}

func (m *budgetModel) grow(c *modelCharge, n int64) (victims []*modelCharge, ok bool) {
	want := c.held + n
	if !c.displaced && want <= m.limit {
		saved := map[*modelCharge]int64{}
		bigOnly := want > m.small && m.largeSum(c)+want > m.largeLimit
		slow := m.slow(c.key, bigOnly)
		for {
			total, large, by := m.sums(c)
			if total+want <= m.limit && (want <= m.small || large+want <= m.largeLimit) {
				for _, v := range victims {
					v.displaced = true
				}
				m.toBack(c)
				c.held = want
				return victims, true
			}
			var v *modelCharge
			if bySlow := len(victims) < len(slow); bySlow {
				v = slow[len(victims)]
			} else if v = m.victim(want > m.small && large+want > m.largeLimit); v != nil &&
				(v.key == c.key || by[c.key]+want > by[v.key]-v.held) {
				v = nil
			}
			if v == nil {
				for v, held := range saved {
					v.held = held
				}
				for i := min(len(victims), len(slow)) - 1; i >= 0; i-- {
					m.toFront(slow[i])
				}
				break
			}
			saved[v], v.held = v.held, 0
			victims = append(victims, v)
		}
	}
	c.held = 0
	return nil, false
}

// victim scans for the greediest. Ties between clients are avoided by the test.
func (m *budgetModel) victim(bigOnly bool) (v *modelCharge) {
	sum := map[int]int64{}
	for _, c := range m.live {
		if !c.pinned && (!bigOnly || c.held > m.small) {
			sum[c.key] += c.held
		}
	}
	var most int64
	for _, s := range sum {
		most = max(most, s)
	}
	for _, wantBig := range []bool{true, false} {
		for _, c := range m.live {
			if c.held > 0 && !c.pinned && sum[c.key] == most && (c.held > m.small) == wantBig && (wantBig || !bigOnly) {
				return c
			}
		}
	}
	return nil
}

func (m *budgetModel) largeSum(except *modelCharge) int64 {
	_, large, _ := m.sums(except)
	return large
}

// slow scans for what goes before anybody's share is looked at. Ties between rates are
// avoided by the test.
func (m *budgetModel) slow(key int, bigOnly bool) (slow []*modelCharge) {
	for _, c := range m.live {
		if c.key != key && c.held > 0 && !c.pinned && c.rate > 0 && slowTransfer(c.rate, c.held) && (!bigOnly || c.held > m.small) {
			slow = append(slow, c)
		}
	}
	slices.SortFunc(slow, func(a, b *modelCharge) int { return int(a.rate - b.rate) })
	return slow
}

func (m *budgetModel) toFront(c *modelCharge) {
	i := slices.Index(m.live, c)
	m.live = append([]*modelCharge{c}, slices.Delete(m.live, i, i+1)...)
}

func (m *budgetModel) toBack(c *modelCharge) {
	i := slices.Index(m.live, c)
	m.live = append(slices.Delete(m.live, i, i+1), c)
}

// pacedModel is told of displacement and knows how fast its client is.
type pacedModel struct {
	evictFunc
	c *modelCharge
}

func (p pacedModel) pace() (int64, bool) { return p.c.rate, p.c.rate > 0 }

func TestByteBudgetModel(t *testing.T) {
	for seed := range uint64(40) {
		t.Logf("seed %d", seed)
		rnd := rand.New(rand.NewPCG(seed, 4))
		m := &budgetModel{limit: 10007, largeLimit: 7507, small: 640}
		b := mustBudget(t, m.limit, m.limit-m.largeLimit, m.small)
		pairs := map[*modelCharge]*charge{}
		var told []*modelCharge
		evictor := func(mc *modelCharge) func() { return func() { told = append(told, mc) } }
		judged := false
		b.paced = func() bool { return judged }
		rates := int64(0)
		for range 3000 {
			op := rnd.IntN(10)
			if len(m.live) == 0 || op == 0 {
				mc := &modelCharge{key: rnd.IntN(5)}
				m.live = append(m.live, mc)
				pairs[mc] = b.openIn(new(charge), budgetKey(mc.key), pacedModel{evictor(mc), mc})
				continue
			}
			if rnd.IntN(20) == 0 { // of every second seed some are known to be slow
				judged = seed%2 == 1
				if mc := m.live[rnd.IntN(len(m.live))]; judged && !mc.unpaced {
					rates++
					mc.rate = rates*7919%(2*slowRate) + 1
				}
			}
			mc := m.live[rnd.IntN(len(m.live))]
			c := pairs[mc]
			switch op {
			case 1:
				c.close()
				mc.held = 0
				m.live = slices.DeleteFunc(m.live, func(x *modelCharge) bool { return x == mc })
				delete(pairs, mc)
			case 2:
				to := rnd.Int64N(2000)
				c.trim(to)
				if to < mc.held {
					mc.held = to
					m.toBack(mc)
				}
			case 3:
				mc.pinned = !mc.pinned
				fn := evictor(mc)
				if mc.pinned {
					fn = nil
				}
				mc.rate, mc.unpaced = 0, true // whoever is told from now on knows of none
				require.Equal(t, !mc.displaced, c.setEvict(fn))
				if !mc.displaced {
					m.toBack(mc)
				}
			default:
				n := 1 + rnd.Int64N(900)
				if tie(m) {
					continue
				}
				want, ok := m.grow(mc, n)
				told = nil
				err := c.grow(n)
				require.Equal(t, ok, err == nil, "seed %d", seed)
				require.Equal(t, want, told, "seed %d: displaced", seed)
				if err != nil {
					var be *budgetError
					require.True(t, errors.As(err, &be))
					require.LessOrEqual(t, be.Available, be.Wanted)
				}
			}
			total, large, by := m.sums(nil)
			st := b.stats()
			require.Equal(t, total, st.InUse, "seed %d", seed)
			require.Equal(t, large, st.Large, "seed %d", seed)
			require.LessOrEqual(t, st.InUse, m.limit)
			require.LessOrEqual(t, st.Large, m.largeLimit)
			require.LessOrEqual(t, st.InUse, st.High)
			for key, held := range by {
				require.Equal(t, held, b.heldLocked(budgetKey(key)))
			}
			require.Equal(t, mc.held, c.size)
		}
		for _, c := range pairs {
			c.close()
		}
		require.Zero(t, b.stats().InUse)
		require.Empty(t, b.clients)
		require.Empty(t, b.any.order)
		require.Empty(t, b.anyBig.order)
	}
}

// tie reports whether two clients hold equal amounts that can be displaced,
// where the order of arrival, which the model does not keep, decides.
func tie(m *budgetModel) bool {
	all, big := map[int]int64{}, map[int]int64{}
	for _, c := range m.live {
		if !c.pinned {
			all[c.key] += c.held
			if c.held > m.small {
				big[c.key] += c.held
			}
		}
	}
	for _, sums := range []map[int]int64{all, big} {
		seen := map[int64]bool{}
		for _, s := range sums {
			if s > 0 && seen[s] {
				return true
			}
			seen[s] = true
		}
	}
	return false
}
