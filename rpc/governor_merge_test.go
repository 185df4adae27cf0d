// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestGovernorMergesIdenticalReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := bubbleGovernor(t, GovernorConfig{Rate: 1000, Burst: 100, MaxQueue: 100})
		e := &stubEndpoint{answer: func(int, stubRequest) stubAnswer { time.Sleep(time.Second); return stubAnswer{} }}
		c := e.dial(t, WithGovernor(g), WithMergedReads())
		var wg sync.WaitGroup
		call := func(ctx context.Context, method string, args ...interface{}) {
			wg.Add(1)
			go func() {
				defer wg.Done()
				var s string
				if err := c.CallContext(ctx, &s, method, args...); err != nil || s != method {
					t.Errorf("%s: %q, %v", method, s, err)
				}
			}()
		}
		fg := context.Background()
		for i := 0; i < 50; i++ {
			call(fg, "eth_getBalance", "0x1", "latest")
		}
		call(fg, "eth_getBalance", "0x2", "latest") // other parameters
		call(fg, "eth_sendRawTransaction", "0x1")   // not a read
		call(fg, "eth_sendRawTransaction", "0x1")
		call(NewContextWithHeaders(fg, http.Header{"X-Token": {"1"}}), "eth_getBalance", "0x1", "latest")
		wg.Wait()
		require.Equal(t, 5, e.calls)
		require.EqualValues(t, 5, g.Stats().Foreground.Tokens)
		require.EqualValues(t, 49, g.Stats().Merged)
		call(fg, "eth_getBalance", "0x1", "latest")
		wg.Wait()
		require.Equal(t, 6, e.calls, "an answer is not kept")
	})
}

// Joining a background flight, the foreground would wait in the background's queue.
func TestGovernorForegroundNeverWaitsOnBackgroundFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := bubbleGovernor(t, GovernorConfig{Rate: 1, Burst: 4, ForegroundReserve: 75, MaxQueue: 100})
		e := new(stubEndpoint)
		c := e.dial(t, WithGovernor(g), WithMergedReads())
		bg := ContextWithBackground(context.Background())
		require.NoError(t, c.CallContext(bg, nil, "eth_blockNumber"))
		var wg sync.WaitGroup
		for i := 0; i < 10; i++ { // one flight, waiting
			wg.Add(1)
			go func() { defer wg.Done(); c.CallContext(bg, nil, "eth_blockNumber") }()
		}
		synctest.Wait()
		start := time.Now()
		require.NoError(t, c.CallContext(context.Background(), nil, "eth_blockNumber"))
		require.Zero(t, time.Since(start))
		wg.Wait()
		require.Equal(t, 3, e.calls)
	})
}

// A flight belongs to all its callers: one that leaves does not fail the rest, the last
// one that leaves ends it.
func TestGovernorFlightOutlivesItsFirstCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := bubbleGovernor(t, GovernorConfig{Rate: 1000, Burst: 100, MaxQueue: 100})
		var aborted atomic.Int64
		e := &stubEndpoint{answer: func(_ int, r stubRequest) stubAnswer {
			select {
			case <-r.ctx.Done():
				aborted.Add(1)
				return stubAnswer{err: r.ctx.Err()}
			case <-time.After(10 * time.Second):
				return stubAnswer{}
			}
		}}
		c := e.dial(t, WithGovernor(g), WithMergedReads(), WithRetries(3))
		call := func(timeout time.Duration) chan error {
			done := make(chan error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), timeout)
				defer cancel()
				done <- c.CallContext(ctx, nil, "eth_blockNumber")
			}()
			synctest.Wait()
			return done
		}
		first, second := call(time.Second), call(time.Minute)
		require.ErrorIs(t, <-first, context.DeadlineExceeded)
		require.NoError(t, <-second)
		require.Zero(t, aborted.Load())

		first, second = call(time.Second), call(2*time.Second)
		require.ErrorIs(t, <-first, context.DeadlineExceeded)
		require.ErrorIs(t, <-second, context.DeadlineExceeded)
		synctest.Wait()
		require.EqualValues(t, 1, aborted.Load())
		require.Equal(t, 2, e.calls, "and is not tried again")
	})
}
