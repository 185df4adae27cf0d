// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
	"github.com/stretchr/testify/require"
)

// Who sends much at a time lets others run after each read, and who sends a long header
// pauses; who sends little never does, however often.
func TestGuardReadersYield(t *testing.T) {
	g, err := NewGuard(DefaultGuardConfig, GuardEnv{Procs: 2})
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		buf := make([]byte, 64<<10)
		for {
			if _, err := io.ReadFull(r.Body, buf); err != nil {
				return
			}
		}
	})}
	var yields, pauses atomic.Int32
	gl := g.PrepareServer(srv, l).(*guardListener)
	gl.yield = func() { yields.Add(1) }
	gl.headers.clock = countingClock{Clock: gl.headers.clock, slept: &pauses}
	go srv.Serve(gl)
	t.Cleanup(func() { srv.Close() })
	conn := dialIdle(t, l.Addr().String())
	answers := bufio.NewReader(conn)
	ask := func(header, body string) (yielded, paused int) {
		t.Helper()
		y, p := yields.Load(), pauses.Load()
		_, err := fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n%s\r\n%s", len(body), header, body)
		require.NoError(t, err)
		resp, err := http.ReadResponse(answers, nil)
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, http.StatusOK, resp.StatusCode)
		return int(yields.Load() - y), int(pauses.Load() - p)
	}
	small := func() {
		t.Helper()
		yielded, paused := ask("", strings.Repeat("x", 1000))
		require.Zero(t, yielded)
		require.Zero(t, paused)
	}
	for range 50 {
		small()
	}
	_, paused := ask("X-Long: "+strings.Repeat("x", 50_000)+"\r\n", "")
	require.NotZero(t, paused)
	yielded, paused := ask("", strings.Repeat("x", 4<<20))
	require.NotZero(t, yielded)
	require.Zero(t, paused, "a body is not kept waiting")
	small() // it is not held against the next request
}

// countingClock counts how often somebody sleeps.
type countingClock struct {
	mclock.Clock
	slept *atomic.Int32
}

func (c countingClock) Sleep(d time.Duration) {
	c.slept.Add(1)
	c.Clock.Sleep(d)
}

func TestReadPace(t *testing.T) {
	var p readPace
	require.False(t, p.long(longHeader, true))
	require.False(t, p.long(1, false), "frames")
	require.True(t, p.long(1, true))
	p.header(false)
	require.False(t, p.long(longHeader+1, true), "a body")
	p.header(true)
	require.False(t, p.long(longHeader, true))
}

// Readers of long headers that are ready at once go on one after the other, at the rate
// that is theirs together, and none waits longer than the longest pause.
func TestHeaderPausesAreARate(t *testing.T) {
	for _, n := range []int{1, 2, 400, 2000, 10000} {
		synctest.Test(t, func(t *testing.T) {
			p, begun := headerPauses{clock: mclock.System{}}, time.Now()
			var mu sync.Mutex
			at := make(map[time.Duration]int)
			var all sync.WaitGroup
			for range n {
				all.Go(func() {
					p.pause()
					mu.Lock()
					defer mu.Unlock()
					at[time.Since(begun)]++
				})
			}
			all.Wait()
			spread := int(maxHeaderPause / headerPause) // pauses of different lengths
			require.Equal(t, min(time.Duration(n)*headerPause, maxHeaderPause), time.Since(begun))
			require.Len(t, at, min(n, spread))
			require.Equal(t, 1, at[headerPause])
			require.Equal(t, max(1, n-spread+1), at[min(time.Duration(n)*headerPause, maxHeaderPause)])
			require.Zero(t, p.pausing.Load())
		})
	}
}

// Trap: a pause that is only made when somebody else is in one. Nobody ever begins, and
// 2000 readers find no reason to.
func TestTrapFirstLongHeaderPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, begun := headerPauses{clock: mclock.System{}}, time.Now()
		for range 14 {
			p.pause()
		}
		require.Equal(t, 14*headerPause, time.Since(begun), "64 KiB alone")
	})
}

// Trap: readers that leave while they pause keep others waiting. Who comes after 5000 of
// them waits for the longest pause, once, and then for nobody.
func TestTrapPausesOfThoseWhoLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := headerPauses{clock: mclock.System{}}
		for range 5000 {
			go p.pause()
		}
		synctest.Wait()
		begun := time.Now()
		p.pause()
		require.Equal(t, maxHeaderPause, time.Since(begun))
		synctest.Wait()
		begun = time.Now()
		p.pause()
		require.LessOrEqual(t, time.Since(begun), 2*headerPause)
	})
}
