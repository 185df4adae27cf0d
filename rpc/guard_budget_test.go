// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"errors"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
	"github.com/stretchr/testify/require"
)

func budgetKey(n int) clientKey {
	return clientOf(netip.AddrFrom4([4]byte{198, 51, 100, byte(n)}))
}

// smallTransfer is the largest that may use the part of a budget kept for small ones.
const smallTransfer = 64 << 10

func mustBudget(t testing.TB, limit, reserve, small int64) *byteBudget {
	t.Helper()
	b, err := newByteBudget(limit, reserve, small)
	require.NoError(t, err)
	return b
}

func TestByteBudgetRefusesNonsense(t *testing.T) {
	for _, c := range [][3]int64{{0, 0, 0}, {-1, 0, 0}, {10, 10, 1}, {10, -1, 1}, {10, 2, -1}} {
		_, err := newByteBudget(c[0], c[1], c[2])
		require.Error(t, err, "%v", c)
	}
}

// Of n equal transfers that grow in turn exactly as many survive as fit: a
// refusal that kept what the refused one held would starve them all.
func TestByteBudgetRefusedGrowGivesAllBack(t *testing.T) {
	const step, steps, fit, n = 64, 25, 3, 8
	b := mustBudget(t, 2*fit*step*steps, fit*step*steps, step)
	var charges []*charge
	for i := range n {
		charges = append(charges, b.open(budgetKey(i), nil))
	}
	alive := slices.Clone(charges)
	for range steps {
		alive = slices.DeleteFunc(alive, func(c *charge) bool {
			err := c.grow(step)
			if err == nil {
				return false
			}
			var be *budgetError
			require.ErrorAs(t, err, &be)
			require.Greater(t, be.Wanted, be.Available)
			require.Zero(t, c.held())
			return true
		})
	}
	require.Len(t, alive, fit)
	require.EqualValues(t, fit*step*steps, b.stats().InUse)
	require.EqualValues(t, n-fit, b.stats().Refused)
	for _, c := range charges {
		c.close()
	}
	require.Zero(t, b.stats().InUse)
	require.Zero(t, b.stats().Large)
	require.Empty(t, b.clients)
}

func TestByteBudgetSmallReserve(t *testing.T) {
	b := mustBudget(t, 100, 25, 10)
	big := b.open(budgetKey(1), nil)
	require.NoError(t, big.grow(75))
	other := b.open(budgetKey(2), nil)
	require.NoError(t, other.grow(10))
	err := other.grow(1) // outgrows the small part
	var be *budgetError
	require.ErrorAs(t, err, &be)
	require.Equal(t, budgetError{Wanted: 11, Available: 10, Limit: 100}, *be)
	var small []*charge
	for range 2 {
		c := b.open(budgetKey(3), nil)
		require.NoError(t, c.grow(10))
		small = append(small, c)
	}
	require.Error(t, b.open(budgetKey(3), nil).grow(6), "whole budget")
	big.trim(10)
	require.EqualValues(t, 30, b.stats().InUse)
	require.Zero(t, b.stats().Large, "trimmed below the small mark")
	big.close()
	for _, c := range small {
		c.close()
	}
	require.Zero(t, b.stats().InUse)
	require.EqualValues(t, 95, b.stats().High)
}

// Trap: sums that overflow when a limit is "unlimited".
func TestByteBudgetHugeGrowDoesNotWrap(t *testing.T) {
	for _, limit := range []int64{math.MaxInt64 - 1, math.MaxInt64} {
		b := mustBudget(t, limit, limit/4, 10)
		c, other := b.open(budgetKey(1), nil), b.open(budgetKey(2), nil)
		require.NoError(t, c.grow(100))
		require.NoError(t, other.grow(1<<40))
		require.NoError(t, c.grow(100))
		require.EqualValues(t, 200, c.held())
		require.Error(t, c.grow(math.MaxInt64))
		require.Zero(t, c.held())
		require.EqualValues(t, 1<<40, b.stats().InUse)
	}
}

// A client that fills the budget alone gives way to another one, slowest
// transfer first, and only down to equal shares.
func TestByteBudgetDisplacesTheGreediest(t *testing.T) {
	b := mustBudget(t, 100, 20, 5)
	var gone []int
	var greedy []*charge
	for i := range 4 {
		c := b.open(budgetKey(1), func() { gone = append(gone, i) })
		require.NoError(t, c.grow(20))
		greedy = append(greedy, c)
	}
	require.NoError(t, greedy[0].grow(0))
	greedy[0].touch() // makes progress: not the slowest
	require.Error(t, b.open(budgetKey(1), nil).grow(10), "own transfers are not displaced")

	polite := b.open(budgetKey(2), nil)
	require.NoError(t, polite.grow(10))
	require.Equal(t, []int{1}, gone)
	require.Zero(t, greedy[1].held())
	require.Error(t, greedy[1].grow(1), "displaced for good")
	require.False(t, greedy[1].setEvict(nil))
	require.NoError(t, polite.grow(30))
	require.Equal(t, []int{1, 2}, gone)
	// Greedy keeps 40; with a third it would keep 20 while polite holds 50.
	require.Error(t, polite.grow(10))
	require.Equal(t, []int{1, 2}, gone)
	require.EqualValues(t, 2, b.stats().Evicted)

	// A pinned transfer is never displaced.
	require.True(t, greedy[0].setEvict(nil))
	require.True(t, greedy[3].setEvict(nil))
	require.NoError(t, polite.grow(40))
	require.Error(t, b.open(budgetKey(3), nil).grow(20))
	for _, c := range append(greedy, polite) {
		c.close()
	}
	require.Zero(t, b.stats().InUse)
	require.Zero(t, len(b.any.order)+len(b.anyBig.order))
}

// A newcomer that cannot get enough displaces nobody.
func TestByteBudgetDisplacesAllOrNothing(t *testing.T) {
	b := mustBudget(t, 100, 0, 5)
	var greedy []*charge
	for range 5 {
		c := b.open(budgetKey(1), func() { t.Error("displaced in vain") })
		require.NoError(t, c.grow(20))
		greedy = append(greedy, c)
	}
	require.Error(t, b.open(budgetKey(2), nil).grow(60))
	require.EqualValues(t, 100, b.stats().InUse)
	require.Equal(t, greedy[0], b.clients[budgetKey(1)].big.front(), "order kept")
	for _, c := range greedy {
		c.close()
	}
}

// Attack 49: transfers that fill the budget and stop, one a client, so that nobody
// keeps anything that a newcomer could be compared with.
func TestByteBudgetStoppedTransferLosesToAnybody(t *testing.T) {
	clock := new(mclock.Simulated)
	b := mustBudget(t, 1000, 0, 5)
	b.pause, b.clock = 250*time.Millisecond, clock
	gone := 0
	grow := func(key, steps int, pace time.Duration) *charge {
		c := b.open(budgetKey(key), func() { gone++ })
		for range steps {
			clock.Run(pace)
			require.NoError(t, c.grow(10))
		}
		return c
	}
	slow := grow(2, 49, 10*time.Millisecond)
	fast := grow(1, 50, time.Millisecond)
	polite := b.open(budgetKey(3), nil)
	require.Error(t, b.open(budgetKey(3), nil).grow(20), "not stopped for long")
	clock.Run(300 * time.Millisecond)
	require.Error(t, b.open(budgetKey(4), nil).grow(501), "more than it held")
	require.NoError(t, polite.grow(400))
	require.Equal(t, 1, gone)
	require.Zero(t, fast.held())
	require.EqualValues(t, 490, slow.held())
	for _, c := range []*charge{fast, slow, polite} {
		c.close()
	}
	// At 1300 ms a step four of them are no stop.
	fast = grow(5, 100, 1300*time.Millisecond)
	clock.Run(5 * time.Second)
	require.Error(t, b.open(budgetKey(6), nil).grow(10))
	clock.Run(time.Second)
	require.NoError(t, b.open(budgetKey(6), nil).grow(10))
	require.Equal(t, 2, gone)
}

func TestByteBudgetClosedTwicePanics(t *testing.T) {
	c := mustBudget(t, 100, 0, 5).open(budgetKey(1), nil)
	c.close()
	require.Panics(t, c.close)
	require.Panics(t, func() { c.grow(1) })
}

func TestByteBudgetNil(t *testing.T) {
	var b *byteBudget
	c := b.open(budgetKey(1), nil)
	require.NoError(t, c.grow(math.MaxInt64))
	c.trim(1)
	c.touch()
	require.True(t, c.setEvict(nil))
	require.Zero(t, c.held())
	c.close()
	require.Zero(t, b.stats())
}

// Attack 49: one reply a client, each taken at 2 KiB/s, fill the budget, and nobody
// keeps anything that a newcomer could be compared with.
func TestTrapSlowReadersLockOut(t *testing.T) {
	b := mustBudget(t, 256<<20, 64<<20, smallTransfer)
	known := false
	b.paced = func() bool { return known }
	var gone []int
	readers := map[int]*modelCharge{}
	open := func(key int, size, rate int64) *charge {
		readers[key] = &modelCharge{rate: rate}
		c := b.openIn(new(charge), budgetKey(key), pacedModel{func() { gone = append(gone, key) }, readers[key]})
		require.NoError(t, c.grow(size))
		return c
	}
	const mb = 1000 * 1000
	for i := range 6 {
		open(i, 20*mb, 2048+int64(i))
	}
	open(6, 2*mb, 50_000)
	open(7, 20*mb, 50_000)
	open(8, 20*mb, 200_000)
	open(9, 20*mb, 0) // not known yet
	for i := 10; i < 13; i++ {
		c := open(i, 3*mb, 0)
		defer c.close()
	}
	newcomer := func() *charge { return b.open(budgetKey(100), nil) }
	require.Error(t, newcomer().grow(21*mb), "nobody has been judged yet")
	known = true
	require.Error(t, b.open(budgetKey(0), nil).grow(150*mb), "more than the slow ones hold, and nobody is displaced then")
	require.Empty(t, gone)
	first := newcomer()
	require.NoError(t, first.grow(21*mb))
	require.Equal(t, []int{0}, gone, "the slowest, and no more than needed")
	require.NoError(t, b.open(budgetKey(101), nil).grow(90*mb), "one slow transfer has no claim against a larger reply")
	require.Equal(t, []int{0, 1, 2, 3, 4, 5}, gone)
	require.Error(t, b.open(budgetKey(102), nil).grow(25*mb), "steady readers stay")
	require.Len(t, gone, 6)
}

// A client's own slow reply is not what makes room for its next one.
func TestByteBudgetSlowOwnTransferStays(t *testing.T) {
	b := mustBudget(t, 10<<20, 0, smallTransfer)
	b.paced = func() bool { return true }
	c := b.openIn(new(charge), budgetKey(1), pacedModel{func() { t.Error("displaced") }, &modelCharge{rate: 1}})
	require.NoError(t, c.grow(9<<20))
	require.Error(t, b.open(budgetKey(1), nil).grow(2<<20))
	require.EqualValues(t, 9<<20, c.held())
}

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

func TestByteBudgetConcurrent(t *testing.T) {
	b := mustBudget(t, 1<<20, 1<<18, 1<<12)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(i), 9))
			for range 2000 {
				c := b.open(budgetKey(i%3), func() {})
				for range rnd.IntN(8) {
					if c.grow(rnd.Int64N(1<<16)) != nil {
						break
					}
				}
				c.trim(rnd.Int64N(1 << 16))
				c.setEvict(nil)
				c.close()
			}
		})
	}
	wg.Wait()
	require.Zero(t, b.stats().InUse)
	require.Empty(t, b.clients)
	require.LessOrEqual(t, b.stats().High, int64(1<<20))
}

func BenchmarkByteBudget(b *testing.B) {
	b.Run("open-grow-close", func(b *testing.B) {
		budget := mustBudget(b, 1<<30, 1<<28, budgetStep)
		key := budgetKey(1)
		b.ReportAllocs()
		for b.Loop() {
			c := budget.open(key, nil)
			c.grow(200)
			c.close()
		}
	})
	b.Run("baseline-mutex", func(b *testing.B) {
		var mu sync.Mutex
		var n int64
		b.ReportAllocs()
		for b.Loop() {
			mu.Lock()
			n += 200
			mu.Unlock()
			mu.Lock()
			n -= 200
			mu.Unlock()
		}
		_ = n
	})
}
