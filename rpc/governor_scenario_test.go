// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The scenario: a budget of 50 calls a second, burst 10, 80 percent kept for the
// foreground; 1000 background and 100 foreground calls, all made at once.
var scenarioConfig = GovernorConfig{Rate: 50, Burst: 10, ForegroundReserve: 80, MaxQueue: 6000}

type scenarioResult struct {
	foreground, background []time.Duration // waits of the calls, sorted
	refused                [numGovernorClasses]int
}

// runScenario makes the calls of the scenario and returns when they are answered. The
// background comes first, which is the worse order for the foreground.
func runScenario(t *testing.T, c *Client, settle func()) scenarioResult {
	var (
		wg  sync.WaitGroup
		mu  sync.Mutex
		res scenarioResult
	)
	send := func(class GovernorClass, n int, waits *[]time.Duration) {
		ctx := ContextWithForeground(context.Background())
		if class == Background {
			ctx = ContextWithBackground(context.Background())
		}
		start := time.Now()
		for i := 0; i < n; i++ {
			wg.Add(1)
			go func() {
				defer wg.Done()
				err := c.CallContext(ctx, nil, "test_echo", "x")
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					*waits = append(*waits, time.Since(start))
				case errors.Is(err, ErrLocalCapacity):
					res.refused[class]++
				default:
					t.Error(err)
				}
			}()
		}
	}
	send(Background, 1000, &res.background)
	settle()
	send(Foreground, 100, &res.foreground)
	wg.Wait()
	slices.Sort(res.foreground)
	slices.Sort(res.background)
	return res
}

// busiestSecond returns the largest number of arrivals in any second, its end included.
func busiestSecond(arrivals []time.Time) (most int) {
	slices.SortFunc(arrivals, time.Time.Compare)
	end := 0
	for begin, at := range arrivals {
		for end < len(arrivals) && arrivals[end].Sub(at) <= time.Second {
			end++
		}
		most = max(most, end-begin)
	}
	return most
}

func TestGovernorScenario(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			g     = bubbleGovernor(t, scenarioConfig)
			e     = new(stubEndpoint)
			start = time.Now()
			res   = runScenario(t, e.dial(t, WithGovernor(g)), synctest.Wait)
		)
		require.Equal(t, [numGovernorClasses]int{}, res.refused)
		require.Len(t, res.foreground, 100)
		require.Len(t, res.background, 1000)

		var arrivals []time.Time
		for _, r := range e.requests {
			arrivals = append(arrivals, r.at)
		}
		busiest := busiestSecond(arrivals)
		// The 99th of 100 calls has 89 before it that the burst does not cover.
		p99, alone := res.foreground[98], 89*time.Second/50
		progress := 0
		for _, wait := range res.background {
			if wait <= res.foreground[99] {
				progress++
			}
		}
		t.Logf("most arrivals in a second %d, foreground p99 %v (by the rate alone %v, %+.1f%%), "+
			"background calls meanwhile %d, all after %v",
			busiest, p99, alone, 100*(float64(p99)/float64(alone)-1), progress, time.Since(start))
		require.LessOrEqual(t, busiest, 60)
		require.LessOrEqual(t, p99, alone+alone/10)
		require.NotZero(t, progress, "background stood still")
		// All but the first ten at the rate, and the reserve is full again at the end.
		require.InDelta(t, (1090+8)/50.0, time.Since(start).Seconds(), 0.01)
		checkGovernorBooks(t, g)
	})
}

// The same with too few places: the background is refused, the foreground never.
func TestGovernorScenarioShortQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := scenarioConfig
		cfg.MaxQueue = 100
		g := bubbleGovernor(t, cfg)
		res := runScenario(t, new(stubEndpoint).dial(t, WithGovernor(g)), synctest.Wait)
		require.Equal(t, [numGovernorClasses]int{Background: 1000 - 2 - 20 + 12}, res.refused)
		require.Len(t, res.foreground, 100)
		require.EqualValues(t, 12, g.Stats().Background.Displaced)
		checkGovernorBooks(t, g)
	})
}

type governorCountingService struct {
	mu       sync.Mutex
	arrivals []time.Time
}

func (s *governorCountingService) Echo(x string) string {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrivals = append(s.arrivals, now)
	return x
}

// The same over real sockets. A busy machine can hold up what was sent in one second and
// have it arrive in the next, so the bound is wide here, and the waits are only reported.
func TestGovernorScenarioOverLoopback(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 6 s")
	}
	cfg := scenarioConfig
	cfg.Rate, cfg.Burst = 200, 40 // four times as fast, to be done in 6 s
	g, err := NewGovernor(cfg)
	require.NoError(t, err)
	defer g.Close()
	var (
		service governorCountingService
		server  = newPlainServer()
	)
	require.NoError(t, server.RegisterName("test", &service))
	hs := httptest.NewServer(server)
	defer hs.Close()
	hc := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	defer hc.CloseIdleConnections()
	c, err := DialOptions(context.Background(), hs.URL, WithGovernor(g), WithHTTPClient(hc))
	require.NoError(t, err)
	defer c.Close()

	res := runScenario(t, c, func() { time.Sleep(10 * time.Millisecond) })
	require.Equal(t, [numGovernorClasses]int{}, res.refused)
	busiest := busiestSecond(service.arrivals)
	p99, alone := res.foreground[98], 59*time.Second/200
	t.Logf("most arrivals in a second %d (budget 240), foreground p99 %v (by the rate alone %v)", busiest, p99, alone)
	require.LessOrEqual(t, busiest, 240+240/4)
	checkGovernorBooks(t, g)
}

// A server that serves eight calls at a time and refuses the rest with 429, used to the
// full by others: the governed client's callers see no error, those of a client without
// a governor do.
func TestGovernorAgainstSaturatedServer(t *testing.T) {
	for _, governed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var inside, refused atomic.Int64
			e := &stubEndpoint{answer: func(int, stubRequest) stubAnswer {
				defer inside.Add(-1)
				if inside.Add(1) > 8 {
					refused.Add(1)
					return refuseHTTP(429, "")
				}
				time.Sleep(10 * time.Millisecond)
				return stubAnswer{}
			}}
			stop := make(chan struct{})
			var others sync.WaitGroup
			for i := 0; i < 9; i++ {
				others.Add(1)
				go func() {
					defer others.Done()
					for c := e.dial(t); ; {
						select {
						case <-stop:
							return
						case <-time.After(7 * time.Millisecond):
							c.Call(nil, "eth_blockNumber")
						}
					}
				}()
			}
			var options []ClientOption
			if governed {
				options = []ClientOption{WithRetries(1000), WithGovernor(bubbleGovernor(t, GovernorConfig{
					Rate: 100, Burst: 4, MaxQueue: 1000, Backoff: 50 * time.Millisecond, MaxPause: time.Second}))}
			}
			c := e.dial(t, options...)
			var wg sync.WaitGroup
			var failed atomic.Int64
			start := time.Now()
			for i := 0; i < 1000; i++ {
				wg.Add(1)
				go func() {
					defer wg.Done()
					if c.Call(nil, "eth_getBalance") != nil {
						failed.Add(1)
					}
				}()
			}
			wg.Wait()
			t.Logf("governed %v: %d of 1000 failed, %d refusals in all, %v", governed, failed.Load(), refused.Load(), time.Since(start))
			require.Equal(t, governed, failed.Load() == 0)
			close(stop)
			others.Wait()
		})
	}
}
