// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
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
