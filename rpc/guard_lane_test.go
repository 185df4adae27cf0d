// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func testLane(width int) *readLane {
	l := newReadLane(bubbleClock{})
	l.width = width
	return l
}

// checkLane compares a lane's lists with each other.
func checkLane(t *testing.T, l *readLane) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	require.LessOrEqual(t, l.turns.n, l.width)
	waiting := 0
	for n := l.ring.first; n != nil; n = n.next {
		require.NotZero(t, n.of.seats.n, "a client in the ring that does not wait")
		waiting += n.of.seats.n
		for s := n.of.seats.first; s != nil; s = s.next {
			require.EqualValues(t, laneWaiting, s.of.state.Load())
		}
	}
	require.Equal(t, waiting, l.waiting)
	require.Equal(t, len(l.clients), l.ring.n)
	for n := l.turns.first; n != nil; n = n.next {
		require.Contains(t, []int32{laneGranted, laneRunning}, n.of.state.Load())
	}
	require.True(t, l.waiting == 0 || l.ticking, "waiters and no tick to come")
	require.True(t, l.waiting == 0 || l.turns.n == l.width || l.left <= 0, "a waiter, and a lane with time")
}

// Who sends little is never asked to wait, whatever the others do.
func TestLaneSmallSendersPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := testLane(1)
		holder, waiter := l.seat(budgetKey(1)), l.seat(budgetKey(2))
		holder.pass(1<<20, false)
		go waiter.pass(1<<20, false)
		synctest.Wait()
		require.Equal(t, 1, l.waiting)
		small := l.seat(budgetKey(3))
		for range 1000 { // 4 KiB every 5 ms are 800 KB/s
			small.header(true)
			small.pass(4<<10, true)
			small.leave()
			time.Sleep(5 * time.Millisecond)
		}
		require.Zero(t, small.state.Load())
		require.EqualValues(t, 1, l.waits.Load())
		waiter.leave()
	})
}

// A long header is bulk however slowly it comes; HTTP/2 frames are no header.
func TestLaneLongHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := testLane(1)
		for _, tc := range []struct {
			name  string
			http1 bool
			head  bool
			turn  bool
		}{{"header", true, true, true}, {"body", true, false, false}, {"HTTP/2", false, true, false}} {
			s := l.seat(budgetKey(1))
			s.header(tc.head)
			for i := range 4 {
				s.pass(4<<10, tc.http1)
				require.Equal(t, tc.turn && i >= 2, s.state.Load() == laneRunning, "%s, piece %d", tc.name, i)
				s.leave()
				time.Sleep(time.Second)
			}
		}
	})
}

// One client with 100 connections, another with one: that waits one turn.
func TestLaneServesClientsInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := testLane(1)
		first := l.seat(budgetKey(1))
		first.pass(1<<20, false)
		var served []int
		var seats []*laneSeat
		for i := range 101 {
			s := l.seat(budgetKey(1 + i/100))
			seats = append(seats, s)
			go func() {
				s.pass(1<<20, false)
				served = append(served, i)
				s.leave()
			}()
			synctest.Wait()
		}
		checkLane(t, l)
		first.leave()
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, served, 101)
		require.Equal(t, []int{0, 100, 1}, served[:3])
		require.Zero(t, l.waiting)
		require.False(t, l.ticking)
		require.Empty(t, l.clients)
	})
}

// Turns take half of the time while somebody waits, all of it when nobody does.
func TestLaneLeavesHalfOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := testLane(1)
		end := time.Now().Add(time.Second)
		var turns atomic.Int64
		reader := func(i int) {
			s := l.seat(budgetKey(i))
			for time.Now().Before(end) {
				s.pass(1<<20, false)
				turns.Add(1)
				time.Sleep(100 * time.Microsecond) // the work of a turn
				s.leave()
			}
		}
		for i := range 20 {
			go reader(i)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.InDelta(t, 5000, turns.Load(), 600, "of 10000")
		turns.Store(0)
		end = time.Now().Add(time.Second)
		go reader(1)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.EqualValues(t, 10000, turns.Load())
	})
}

// A reader that runs a method does not come back: its turn ends without it.
func TestLaneTurnEndsWithoutItsHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := testLane(1)
		busy, next := l.seat(budgetKey(1)), l.seat(budgetKey(2))
		busy.pass(1<<20, false)
		begun := time.Now()
		next.pass(1<<20, false)
		require.LessOrEqual(t, time.Since(begun), 2*laneTick)
		require.Zero(t, busy.state.Load())
		busy.leave() // too late, and harmless
		checkLane(t, l)
		next.leave()
	})
}

// A connection that is closed while it waits goes on at once, to find out.
func TestLaneLeaveWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := testLane(1)
		holder, waiter := l.seat(budgetKey(1)), l.seat(budgetKey(2))
		holder.pass(1<<20, false)
		done := make(chan struct{})
		go func() { waiter.pass(1<<20, false); close(done) }()
		synctest.Wait()
		waiter.leave()
		synctest.Wait()
		<-done
		require.EqualValues(t, laneRunning, holder.state.Load())
		checkLane(t, l)
	})
}

// What a connection sends after a refusal is read by somebody else, while its reader
// still waits.
func TestLaneTwoReadersOfOneConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := testLane(1)
		holder, s := l.seat(budgetKey(1)), l.seat(budgetKey(2))
		holder.pass(1<<20, false)
		var done atomic.Int64
		reader := func() { s.pass(1<<20, false); done.Add(1) }
		go reader()
		synctest.Wait()
		s.leave() // the second one reads
		go reader()
		go reader()
		synctest.Wait()
		checkLane(t, l)
		holder.leave()
		time.Sleep(10 * time.Millisecond)
		require.EqualValues(t, 3, done.Load())
		s.leave()
		require.Zero(t, l.turns.n)
	})
}

// A turn goes on while there is more, for half a tick.
func TestLaneTurnGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := testLane(1)
		s := l.seat(budgetKey(1))
		require.False(t, s.more())
		s.pass(64<<10, false)
		for begun := time.Now(); s.more(); s.pass(64<<10, false) {
			require.Less(t, time.Since(begun), laneTurn)
			time.Sleep(100 * time.Microsecond)
		}
		s.leave()
		require.False(t, s.more())
		require.False(t, (*laneSeat)(nil).more())
	})
}

// Random readers, some of which never come back, some of which are closed: nobody
// is forgotten, and the books are right after each step.
func TestLaneModel(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			l := testLane(1 + int(seed%3))
			var running, most atomic.Int64
			var left atomic.Int64
			for i := range 30 {
				s := l.seat(budgetKey(i % 7))
				work := rand.New(rand.NewPCG(seed, uint64(i)))
				left.Add(1)
				go func() {
					defer left.Add(-1)
					for range 50 {
						s.pass(work.IntN(64<<10), work.IntN(2) == 0)
						most.Store(max(most.Load(), running.Add(1)))
						d := time.Duration(work.IntN(200)) * time.Microsecond
						if work.IntN(20) == 0 {
							d = 5 * time.Millisecond
						}
						time.Sleep(d)
						running.Add(-1)
						s.leave()
						if work.IntN(10) == 0 {
							time.Sleep(time.Duration(work.IntN(20)) * time.Millisecond)
						}
					}
				}()
				if rng.IntN(4) == 0 {
					go func() {
						time.Sleep(time.Duration(i) * time.Millisecond)
						s.leave()
					}()
				}
			}
			for left.Load() > 0 {
				time.Sleep(50 * time.Microsecond)
				synctest.Wait()
				checkLane(t, l)
			}
			time.Sleep(time.Second)
			require.Zero(t, l.turns.n)
			require.Zero(t, l.waiting)
			require.Empty(t, l.clients)
			require.False(t, l.ticking)
		})
	}
}

// Attack 44 at the server: connections in the middle of long headers wait for their
// turn, and one with a short one is answered meanwhile.
func TestLaneOfLongHeadersAtTheServer(t *testing.T) {
	s := newIntakeServer(t, func(c *GuardConfig, _ *http.Server) {})
	lane := s.g.lane
	holder := lane.seat(budgetKey(1))
	// The lane has no time: whoever has to wait for it waits.
	lane.mu.Lock()
	lane.ticking, lane.left = true, -time.Hour
	lane.turns.pushBack(&holder.node)
	holder.state.Store(laneGranted)
	lane.width = 1
	lane.mu.Unlock()
	var conns []net.Conn
	for range 20 {
		conn := dialIdle(t, s.addr)
		_, err := conn.Write([]byte("POST / HTTP/1.1\r\nHost: x\r\nX-Filler: " + strings.Repeat("f", 24<<10)))
		require.NoError(t, err)
		conns = append(conns, conn)
	}
	waiting := func(n int) func() bool {
		return func() bool { lane.mu.Lock(); defer lane.mu.Unlock(); return lane.waiting == n }
	}
	require.Eventually(t, waiting(20), 5*time.Second, time.Millisecond)
	resp, _ := post(t, &http.Client{Transport: new(http.Transport)}, "http://"+s.addr, intakeCall("len", 10))
	require.Equal(t, 200, resp.StatusCode)
	// Who is closed while it waits leaves no trace.
	s.g.conns.mu.Lock()
	places := s.g.conns.count
	s.g.conns.mu.Unlock()
	require.Positive(t, places)
	lane.mu.Lock()
	lane.width, lane.left = 1000, time.Hour
	lane.grantLocked()
	lane.mu.Unlock()
	holder.leave()
	require.Eventually(t, waiting(0), 5*time.Second, time.Millisecond)
	for _, conn := range conns {
		conn.Close()
	}
}

func BenchmarkLane(b *testing.B) {
	b.Run("small", func(b *testing.B) {
		s := testLane(1).seat(budgetKey(1))
		s.header(false)
		b.ReportAllocs()
		for b.Loop() {
			s.leave()
			s.credit.Store(laneFree)
			s.pass(100, true)
		}
	})
	b.Run("alone", func(b *testing.B) {
		s := testLane(1).seat(budgetKey(1))
		b.ReportAllocs()
		for b.Loop() {
			s.leave()
			s.pass(64<<10, true)
		}
	})
}
