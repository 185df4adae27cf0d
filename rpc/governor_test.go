// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"errors"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
	"github.com/ethereum/go-ethereum/metrics"
	"github.com/stretchr/testify/require"
)

func TestGovernorRefusesNonsense(t *testing.T) {
	ok := GovernorConfig{Rate: 1, Burst: 1}
	_, err := NewGovernor(ok)
	require.NoError(t, err)

	for field, change := range map[string]func(*GovernorConfig){
		"Rate 0":            func(c *GovernorConfig) { c.Rate = 0 },
		"Rate NaN":          func(c *GovernorConfig) { c.Rate = math.NaN() },
		"Rate +Inf":         func(c *GovernorConfig) { c.Rate = math.Inf(1) },
		"Burst 0":           func(c *GovernorConfig) { c.Burst = 0 },
		"ForegroundReserve": func(c *GovernorConfig) { c.ForegroundReserve = 100 },
		"MaxQueue -1":       func(c *GovernorConfig) { c.MaxQueue = -1 },
		"StartupJitter":     func(c *GovernorConfig) { c.StartupJitter = 2 * time.Hour },
		"MaxPause":          func(c *GovernorConfig) { c.MaxPause = -1 },
		"Backoff":           func(c *GovernorConfig) { c.Backoff, c.MaxPause = 2, 1 },
	} {
		cfg := ok
		change(&cfg)
		_, err := NewGovernor(cfg)
		require.ErrorContains(t, err, field)
	}
}

// A budget refilled once a second lets through twice its rate around the tick.
func TestGovernorRefillsContinuously(t *testing.T) {
	g, clock := simGovernor(t, GovernorConfig{Rate: 50, Burst: 10, MaxQueue: 1000})
	var waiters []*governorWaiter
	sent := make([]int, 0, 1000) // milliseconds at which calls were sent
	for i := 0; i < 500; i++ {
		if w := enterNow(t, g, Foreground, 1); w != nil {
			waiters = append(waiters, w)
		} else {
			sent = append(sent, 0)
		}
	}
	for ms := 1; ms <= 5000; ms++ {
		advanceClock(clock, time.Millisecond)
		for len(waiters) > 0 && outcomeOf(g, waiters[0]) == governorGranted {
			sent, waiters = append(sent, ms), waiters[1:]
		}
	}
	require.Len(t, sent, 10+5*50)
	for i := range sent {
		n := 0
		for n < len(sent)-i && sent[i+n] <= sent[i]+1000 {
			n++
		}
		require.LessOrEqual(t, n, 60, "in the second from %d ms", sent[i])
	}
}

// Looking at the bucket and taking from it must be one step.
func TestGovernorNoRaceBetweenCheckAndTake(t *testing.T) {
	g, _ := simGovernor(t, GovernorConfig{Rate: 1, Burst: 100})
	var (
		wg       sync.WaitGroup
		admitted atomic.Int64
	)
	for i := 0; i < 64; i++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for j := 0; j < 10; j++ {
				if _, err := g.admit(context.Background(), GovernorClass(j%2), 1, nil); err == nil {
					admitted.Add(1)
				}
			}
		}()
	}
	wg.Wait()
	require.EqualValues(t, 100, admitted.Load())
	checkGovernorBooks(t, g)
}

func TestGovernorCancelledWaiterGivesPlaceBack(t *testing.T) {
	g, clock := simGovernor(t, GovernorConfig{Rate: 1, Burst: 1, MaxQueue: 2})
	require.Nil(t, enterNow(t, g, Foreground, 1))

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		_, err := g.admit(ctx, Foreground, 1, nil)
		done <- err
	}()
	clock.WaitForTimers(1)
	second := enterNow(t, g, Foreground, 1)
	_, _, err := g.enter(context.Background(), Foreground, 1)
	require.ErrorIs(t, err, ErrLocalCapacity)

	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	third := enterNow(t, g, Foreground, 1) // the place is free
	advanceClock(clock, time.Second)
	require.Equal(t, governorGranted, outcomeOf(g, second), "served behind a waiter that has left")
	advanceClock(clock, time.Second)
	require.Equal(t, governorGranted, outcomeOf(g, third))
	require.Zero(t, clock.ActiveTimers())
	checkGovernorBooks(t, g)
}

func TestGovernorBatchCostsItsCalls(t *testing.T) {
	g, clock := simGovernor(t, GovernorConfig{Rate: 10, Burst: 10, MaxQueue: 10})
	require.Nil(t, enterNow(t, g, Foreground, 8))
	w := enterNow(t, g, Foreground, 5) // 2 are left
	advanceClock(clock, 299*time.Millisecond)
	require.Equal(t, governorWaiting, outcomeOf(g, w))
	advanceClock(clock, time.Millisecond)
	require.Equal(t, governorGranted, outcomeOf(g, w))
	require.EqualValues(t, 13, g.Stats().Foreground.Tokens)
}

// A batch larger than the bucket must be possible, at the price of its calls, and a
// background one must not spend the reserve for it.
func TestGovernorBatchLargerThanBurst(t *testing.T) {
	g, clock := simGovernor(t, GovernorConfig{Rate: 10, Burst: 10, ForegroundReserve: 50, MaxQueue: 10})
	large := enterNow(t, g, Background, 25) // takes 5, then waits for 20 more
	require.InDelta(t, 5, g.Stats().Tokens, 1e-6)
	require.Nil(t, enterNow(t, g, Foreground, 5), "the reserve is there")
	advanceClock(clock, 2400*time.Millisecond)
	require.Equal(t, governorWaiting, outcomeOf(g, large))
	advanceClock(clock, 100*time.Millisecond) // 5 for the reserve, 20 for the batch
	require.Equal(t, governorGranted, outcomeOf(g, large))
	require.EqualValues(t, 25, g.Stats().Background.Tokens)

	advanceClock(clock, time.Second)
	next := enterNow(t, g, Foreground, 100)
	advanceClock(clock, 8900*time.Millisecond)
	require.Equal(t, governorWaiting, outcomeOf(g, next))
	advanceClock(clock, 100*time.Millisecond)
	require.Equal(t, governorGranted, outcomeOf(g, next))
}

// governorSteppedClock is a clock whose time is set at will.
type governorSteppedClock struct {
	mclock.Simulated
	now mclock.AbsTime
}

func (c *governorSteppedClock) Now() mclock.AbsTime { return c.now }

func TestGovernorClockJumpMintsNoBurst(t *testing.T) {
	clock := &governorSteppedClock{now: mclock.AbsTime(time.Hour)}
	g, err := NewGovernor(GovernorConfig{Rate: 50, Burst: 10, Clock: clock})
	require.NoError(t, err)
	take := func() (n int) {
		for {
			if _, _, err := g.enter(context.Background(), Foreground, 1); err != nil {
				return n
			}
			n++
		}
	}
	for i := 0; i < 5; i++ {
		require.Nil(t, enterNow(t, g, Foreground, 1))
		clock.now -= mclock.AbsTime(time.Minute)
		require.Nil(t, enterNow(t, g, Foreground, 1)) // the bucket has seen the earlier time
		clock.now += mclock.AbsTime(time.Minute)
	}
	require.Zero(t, take(), "the same minutes counted again")
	clock.now += mclock.AbsTime(24 * time.Hour)
	require.Equal(t, 10, take(), "a day of sleep is worth one bucket")
}

func TestGovernorReserveOfTokensAndPlaces(t *testing.T) {
	g, clock := simGovernor(t, GovernorConfig{Rate: 10, Burst: 10, ForegroundReserve: 75, MaxQueue: 10})
	// 7.5 is rounded up to 8: two tokens and two places for the background.
	require.Nil(t, enterNow(t, g, Background, 1))
	require.Nil(t, enterNow(t, g, Background, 1))
	first := enterNow(t, g, Background, 1)
	second := enterNow(t, g, Background, 1)
	_, _, err := g.enter(context.Background(), Background, 1)
	var refusal *GovernorError
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, GovernorError{Class: Background, Reason: GovernorQueueFull, Queued: 2, MaxQueue: 10}, *refusal)

	for i := 0; i < 8; i++ {
		require.Nil(t, enterNow(t, g, Foreground, 1))
	}
	// Eight places are free, then the youngest background waiter goes. The oldest stays.
	for i := 0; i < 9; i++ {
		require.NotNil(t, enterNow(t, g, Foreground, 1))
	}
	require.Equal(t, governorDisplaced, outcomeOf(g, second))
	_, _, err = g.enter(context.Background(), Foreground, 1)
	require.ErrorIs(t, err, ErrLocalCapacity)
	require.Equal(t, governorWaiting, outcomeOf(g, first))

	advanceClock(clock, time.Minute)
	require.Equal(t, governorGranted, outcomeOf(g, first))
	checkGovernorBooks(t, g)
	require.Zero(t, clock.ActiveTimers())
}

func TestGovernorForegroundGoesFirst(t *testing.T) {
	g, clock := simGovernor(t, GovernorConfig{Rate: 10, Burst: 1, MaxQueue: 10})
	require.Nil(t, enterNow(t, g, Background, 1))
	bg := enterNow(t, g, Background, 1)
	fg := enterNow(t, g, Foreground, 1)
	advanceClock(clock, 100*time.Millisecond)
	require.Equal(t, governorWaiting, outcomeOf(g, bg))
	require.Equal(t, governorGranted, outcomeOf(g, fg))
	advanceClock(clock, 100*time.Millisecond)
	require.Equal(t, governorGranted, outcomeOf(g, bg))
}

// However small the bucket and however busy the foreground, background goes on.
func TestGovernorBackgroundNeverStarves(t *testing.T) {
	for _, cfg := range []GovernorConfig{
		{Rate: 0.5, Burst: 1, ForegroundReserve: 99, MaxQueue: 2},
		{Rate: 100, Burst: 1, ForegroundReserve: 80, MaxQueue: 10},
		{Rate: 100, Burst: 100, ForegroundReserve: 99, MaxQueue: 1000},
		{Rate: 100, Burst: 100, ForegroundReserve: 0, MaxQueue: 1000},
	} {
		g, clock := simGovernor(t, cfg)
		step := time.Duration(float64(time.Second) / cfg.Rate)
		// The foreground takes all that the rate gives, waiting or not.
		bg, sent := enterNow(t, g, Background, 1), 0
		for i := 0; i < 2000; i++ {
			if outcomeOf(g, bg) == governorGranted {
				bg, sent = enterNow(t, g, Background, 1), sent+1
			}
			g.enter(context.Background(), Foreground, 1)
			clock.Run(step)
		}
		require.GreaterOrEqual(t, sent, 2000/(backgroundTurn+2), "%+v", cfg)
		require.LessOrEqual(t, sent, 2000/backgroundTurn+cfg.Burst, "%+v", cfg)
	}
}

// A background call whose turn comes may use the reserve there and then.
func TestGovernorTurnIsTakenAtOnce(t *testing.T) {
	g, _ := simGovernor(t, GovernorConfig{Rate: 1, Burst: 100, ForegroundReserve: 50, MaxQueue: 10})
	require.Nil(t, enterNow(t, g, Foreground, 55))
	bg := enterNow(t, g, Background, 1)
	for i := 0; i < backgroundTurn; i++ {
		require.Equal(t, governorWaiting, outcomeOf(g, bg))
		require.Nil(t, enterNow(t, g, Foreground, 1))
	}
	require.Equal(t, governorGranted, outcomeOf(g, bg))
}

func TestGovernorStartupJitterDelaysBackgroundOnly(t *testing.T) {
	g, clock := simGovernor(t, GovernorConfig{Rate: 10, Burst: 10, MaxQueue: 10, StartupJitter: 10 * time.Second})
	bg := enterNow(t, g, Background, 1)
	require.Nil(t, enterNow(t, g, Foreground, 1))
	advanceClock(clock, 4999*time.Millisecond)
	require.Equal(t, governorWaiting, outcomeOf(g, bg))
	require.Nil(t, enterNow(t, g, Foreground, 1))
	advanceClock(clock, time.Millisecond)
	require.Equal(t, governorGranted, outcomeOf(g, bg))
	require.Nil(t, enterNow(t, g, Background, 1))
}

func TestGovernorPausesBothClasses(t *testing.T) {
	g, clock := simGovernor(t, GovernorConfig{Rate: 1000, Burst: 10, MaxQueue: 10})
	g.overloaded(0, 3*time.Second)
	fg, bg := enterNow(t, g, Foreground, 1), enterNow(t, g, Background, 1)
	require.Equal(t, 3*time.Second, g.Stats().PauseLeft)
	advanceClock(clock, 2999*time.Millisecond)
	require.Equal(t, governorWaiting, outcomeOf(g, fg))
	advanceClock(clock, time.Millisecond)
	require.Equal(t, governorGranted, outcomeOf(g, fg))
	require.Equal(t, governorGranted, outcomeOf(g, bg))

	// A pause that grows moves those who wait, and no answer can ask for too much.
	g.overloaded(1, time.Second)
	fg = enterNow(t, g, Foreground, 1)
	g.overloaded(1, 1000*time.Hour)
	advanceClock(clock, DefaultGovernorMaxPause-time.Millisecond)
	require.Equal(t, governorWaiting, outcomeOf(g, fg))
	advanceClock(clock, time.Millisecond)
	require.Equal(t, governorGranted, outcomeOf(g, fg))
	require.Equal(t, 3*time.Second+DefaultGovernorMaxPause, g.Stats().Paused)
}

// Calls refused together are one overload: fifty of them must not double fifty times.
func TestGovernorBackoffDoublesOncePerPause(t *testing.T) {
	g, clock := simGovernor(t, GovernorConfig{Rate: 1000, Burst: 100, MaxQueue: 10, Backoff: 100 * time.Millisecond, MaxPause: time.Second})
	var epoch uint64
	for _, want := range []time.Duration{75, 150, 300, 600, 750, 750} {
		for i := 0; i < 50; i++ {
			g.overloaded(epoch, 0)
		}
		require.Equal(t, want*time.Millisecond, g.Stats().PauseLeft)
		g.answered(epoch) // sent before the pause: no news
		advanceClock(clock, time.Second)
		var err error
		epoch, err = g.admit(context.Background(), Foreground, 1, nil)
		require.NoError(t, err)
	}
	require.EqualValues(t, 6, g.Stats().Pauses)
	g.answered(epoch)
	g.overloaded(epoch, 0)
	require.Equal(t, 75*time.Millisecond, g.Stats().PauseLeft, "an answer ends the doubling")
}

func TestGovernorCloseEndsWaiting(t *testing.T) {
	g, clock := simGovernor(t, GovernorConfig{Rate: 1, Burst: 1, MaxQueue: 10})
	require.Nil(t, enterNow(t, g, Foreground, 1))
	errs := make(chan error)
	for i := 0; i < 4; i++ {
		go func() {
			_, err := g.admit(context.Background(), GovernorClass(i%2), 1, nil)
			errs <- err
		}()
	}
	require.Eventually(t, func() bool { s := g.Stats(); return s.Foreground.Waiting+s.Background.Waiting == 4 }, 5*time.Second, time.Millisecond)
	g.Close()
	g.Close()
	for i := 0; i < 4; i++ {
		require.ErrorIs(t, <-errs, ErrGovernorClosed)
	}
	_, err := g.admit(context.Background(), Foreground, 1, nil)
	require.ErrorIs(t, err, ErrGovernorClosed)
	require.NotErrorIs(t, err, ErrLocalCapacity)
	require.Zero(t, clock.ActiveTimers())
	checkGovernorBooks(t, g)
	for class := range governorMetrics {
		require.Zero(t, metrics.GetOrRegisterGauge("rpc/governor/"+GovernorClass(class).String()+"/waiting", nil).Snapshot().Value())
	}
}

// A refusal made here must not look like an endpoint that fails.
func TestGovernorErrorIsNoEndpointFailure(t *testing.T) {
	err := error(&GovernorError{Class: Background, Reason: GovernorQueueFull, Queued: 3, MaxQueue: 10})
	var (
		httpErr HTTPError
		netErr  net.Error
		rpcErr  Error
	)
	require.False(t, errors.As(err, &httpErr))
	require.False(t, errors.As(err, &netErr))
	require.False(t, errors.As(err, &rpcErr))
	require.False(t, isOverload(err) || isEndpointFailure(err))
	require.ErrorIs(t, err, ErrLocalCapacity)
	require.Equal(t, "background call not queued: local capacity for outbound RPC calls exhausted (3 waiting, limit 10)", err.Error())
}

func TestGovernorChargeNeverWaits(t *testing.T) {
	g, clock := simGovernor(t, GovernorConfig{Rate: 10, Burst: 2, MaxQueue: 1})
	g.charge(5)
	require.InDelta(t, -3, g.Stats().Tokens, 1e-6)
	w := enterNow(t, g, Foreground, 1)
	advanceClock(clock, 399*time.Millisecond)
	require.Equal(t, governorWaiting, outcomeOf(g, w), "the debt is paid off first")
	advanceClock(clock, time.Millisecond)
	require.Equal(t, governorGranted, outcomeOf(g, w))
}

// The slower the rate, the longer a rounding error is in time: it must not be spent in a
// loop of timers.
func TestGovernorSlowRateDoesNotSpin(t *testing.T) {
	for _, rate := range []float64{1e-6, 1.0 / 3, 0.7, 3, 1e6 / 7} {
		clock := new(governorCountingClock)
		g, err := NewGovernor(GovernorConfig{Rate: rate, Burst: 3, ForegroundReserve: 50, MaxQueue: 10, Clock: clock})
		require.NoError(t, err)
		for i := 0; i < 3; i++ {
			require.Nil(t, enterNow(t, g, Foreground, 1))
		}
		fg, bg := enterNow(t, g, Foreground, 2), enterNow(t, g, Background, 1)
		for i := 0; i < 6 && outcomeOf(g, bg) != governorGranted; i++ {
			clock.Run(clock.last)
		}
		require.Equal(t, governorGranted, outcomeOf(g, fg))
		require.Equal(t, governorGranted, outcomeOf(g, bg))
		require.LessOrEqual(t, clock.timers, 4, "rate %v", rate)
	}
}

type governorCountingClock struct {
	mclock.Simulated
	timers int
	last   time.Duration
}

func (c *governorCountingClock) AfterFunc(d time.Duration, f func()) mclock.Timer {
	c.timers, c.last = c.timers+1, d
	return c.Simulated.AfterFunc(d, f)
}
