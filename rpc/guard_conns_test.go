// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
	"github.com/stretchr/testify/require"
)

func TestConnsLimits(t *testing.T) {
	ct := newConnTable(5, 3, new(mclock.Simulated))
	never := func() { t.Error("closed for another") }
	var places []*connPlace
	for range 3 {
		places = append(places, ct.add(budgetKey(1), never))
	}
	require.NotContains(t, places, (*connPlace)(nil))
	require.Nil(t, ct.add(budgetKey(1), never), "per client")
	for i := range 2 {
		p := ct.add(budgetKey(2+i), never)
		require.NotNil(t, p)
		places = append(places, p)
	}
	for _, p := range places {
		p.setBusy(true)
	}
	require.Nil(t, ct.add(budgetKey(9), never), "all busy")
	require.EqualValues(t, 2, ct.refused.Load())
	for _, p := range places {
		p.remove()
		p.remove()
		p.setBusy(false)
	}
	require.Zero(t, ct.active.Load())
	require.EqualValues(t, 5, ct.high.Load())
	require.Empty(t, ct.clients)
}

// Attack 49: 10 addresses hold everything idle, an eleventh gets its share.
func TestConnsLongestIdleOfTheGreediestLoses(t *testing.T) {
	clock := new(mclock.Simulated)
	ct := newConnTable(100, 10, clock)
	var gone []int
	for i := range 100 {
		clock.Run(2 * time.Second)
		p := ct.add(budgetKey(i/10), func() { gone = append(gone, i) })
		require.NotNil(t, p)
	}
	var mine []*connPlace
	for range 8 {
		p := ct.add(budgetKey(50), func() { t.Error("newcomer closed") })
		require.NotNil(t, p)
		mine = append(mine, p)
	}
	require.Equal(t, []int{0, 10, 20, 30, 40, 50, 60, 70}, gone)
	require.EqualValues(t, 100, ct.active.Load())
	// 9 for the newcomer would leave the loser with 9: equal shares, allowed.
	require.NotNil(t, ct.add(budgetKey(50), nil))
	require.Nil(t, ct.add(budgetKey(50), nil), "more than the loser keeps")
	for _, p := range mine {
		p.remove()
	}
}

// Random operations against counts kept by hand.
func TestConnsModel(t *testing.T) {
	for seed := range uint64(30) {
		t.Logf("seed %d", seed)
		rnd := rand.New(rand.NewPCG(seed, 8))
		clock := new(mclock.Simulated)
		ct := newConnTable(20, 8, clock)
		type conn struct {
			place *connPlace
			key   int
			busy  bool
		}
		var live []*conn
		for range 3000 {
			clock.Run(time.Duration(rnd.IntN(3)) * time.Second)
			switch op := rnd.IntN(9); {
			case op < 4:
				c := &conn{key: rnd.IntN(5)}
				by := map[int]int{}
				for _, o := range live {
					by[o.key]++
				}
				count := len(live)
				c.place = ct.add(budgetKey(c.key), func() {
					require.False(t, c.busy, "seed %d: busy one closed", seed)
					live = slices.DeleteFunc(live, func(o *conn) bool { return o == c })
				})
				require.Equal(t, c.place != nil, by[c.key] < 8 && (count < 20 || len(live) < count), "seed %d", seed)
				if c.place != nil {
					live = append(live, c)
				}
			case len(live) == 0:
			case op == 4:
				i := rnd.IntN(len(live))
				live[i].place.remove()
				live = slices.Delete(live, i, i+1)
			case op == 5:
				live[rnd.IntN(len(live))].place.touch()
			case op == 6:
				c, to := live[rnd.IntN(len(live))], rnd.IntN(5)
				n := 0
				for _, o := range live {
					if o.key == to {
						n++
					}
				}
				ok := c.place.assign(budgetKey(to))
				require.Equal(t, ok, c.key == to || n < 8, "seed %d", seed)
				if ok {
					c.key = to
				}
			default:
				c := live[rnd.IntN(len(live))]
				c.busy = !c.busy
				c.place.setBusy(c.busy)
			}
			require.EqualValues(t, len(live), ct.active.Load(), "seed %d", seed)
			require.LessOrEqual(t, len(live), 20)
			n := 0
			for _, c := range live {
				require.False(t, c.place.gone)
				if !c.busy {
					n++
				}
			}
			listed := 0
			for _, cl := range ct.clients {
				listed += len(cl.records(t))
			}
			require.Equal(t, n, listed, "seed %d", seed)
		}
		for _, c := range live {
			c.place.remove()
		}
		require.Zero(t, ct.active.Load())
		require.Empty(t, ct.held.holders)
		require.Empty(t, ct.idle.holders)
	}
}
