// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"fmt"
	"math/rand"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
	"golang.org/x/time/rate"
)

// backgroundTurn is how many tokens foreground calls may take in a row, while a
// background call waits, before one goes to the background. One in twenty keeps
// background work alive under any foreground load and costs the foreground five
// percent.
const backgroundTurn = 20

// Defaults of the optional fields of GovernorConfig.
const (
	DefaultGovernorBackoff  = 250 * time.Millisecond
	DefaultGovernorMaxPause = 30 * time.Second
)

// GovernorConfig configures a Governor. Rate and Burst are required.
type GovernorConfig struct {
	// Rate is the number of calls sent per second in the long run, more than 0
	// and at most 1e9. A batch of N calls counts as N.
	Rate float64

	// Burst is the number of calls that may be sent at once after a quiet time,
	// 1 to 1e9. In no time T are more than Burst + Rate*T calls sent, if no
	// single batch is larger than Burst.
	Burst int

	// ForegroundReserve is the percentage, 0 to 99, of Burst and of MaxQueue that
	// is kept for foreground calls, rounded up. One token is always left to the
	// background, and one place if MaxQueue is at least 2.
	ForegroundReserve int

	// MaxQueue is the number of calls that may wait, 0 to 1e6. A batch waits in
	// one place. With 0 a call is sent at once or refused.
	MaxQueue int

	// StartupJitter, up to an hour, spreads the start of background work: none is
	// sent before a random moment within it, counted from NewGovernor. Processes
	// that are restarted together so do not ask together. Foreground calls are
	// not delayed.
	StartupJitter time.Duration

	// Backoff is the first pause after an overloaded answer that names none. It
	// doubles up to MaxPause while such answers go on. 0 means
	// DefaultGovernorBackoff.
	Backoff time.Duration

	// MaxPause, up to an hour, bounds every pause, also one that an endpoint asks
	// for with Retry-After. 0 means DefaultGovernorMaxPause.
	MaxPause time.Duration

	// Clock is the source of time, the system's monotonic clock if nil.
	Clock mclock.Clock
}

// validate fills in the defaults and refuses what cannot work.
func (cfg GovernorConfig) validate() (GovernorConfig, error) {
	if cfg.Backoff == 0 {
		cfg.Backoff = DefaultGovernorBackoff
	}
	if cfg.MaxPause == 0 {
		cfg.MaxPause = DefaultGovernorMaxPause
		if cfg.MaxPause < cfg.Backoff {
			cfg.MaxPause = cfg.Backoff
		}
	}
	if cfg.Clock == nil {
		cfg.Clock = mclock.System{}
	}
	switch {
	case !(cfg.Rate > 0 && cfg.Rate <= 1e9): // also refuses NaN
		return cfg, fmt.Errorf("governor: Rate %v is not in (0, 1e9]", cfg.Rate)
	case cfg.Burst < 1 || cfg.Burst > 1e9:
		return cfg, fmt.Errorf("governor: Burst %d is not in [1, 1e9]", cfg.Burst)
	case cfg.ForegroundReserve < 0 || cfg.ForegroundReserve > 99:
		return cfg, fmt.Errorf("governor: ForegroundReserve %d is not in [0, 99]", cfg.ForegroundReserve)
	case cfg.MaxQueue < 0 || cfg.MaxQueue > 1e6:
		return cfg, fmt.Errorf("governor: MaxQueue %d is not in [0, 1e6]", cfg.MaxQueue)
	case cfg.StartupJitter < 0 || cfg.StartupJitter > time.Hour:
		return cfg, fmt.Errorf("governor: StartupJitter %v is not in [0, 1h]", cfg.StartupJitter)
	case cfg.MaxPause < 0 || cfg.MaxPause > time.Hour:
		return cfg, fmt.Errorf("governor: MaxPause %v is not in (0, 1h]", cfg.MaxPause)
	case cfg.Backoff < 0 || cfg.Backoff > cfg.MaxPause:
		return cfg, fmt.Errorf("governor: Backoff %v is not in (0, MaxPause %v]", cfg.Backoff, cfg.MaxPause)
	}
	return cfg, nil
}

// Governor is one budget for outbound calls, shared by any number of clients of a
// process: every attempt of every client pays here before it is sent. Give it to
// clients with WithGovernor.
//
// The budget is a token bucket of Rate and Burst. A call takes one token, a batch of
// N takes N. What cannot be paid at once waits in one of two queues, first come first
// served in each:
//
//   - foreground calls (the default) may use every token and every place, and go first;
//   - background calls (see ContextWithBackground) leave ForegroundReserve percent of
//     the bucket and of the places untouched. While they wait, one token in
//     twenty-one is theirs, so that no foreground load starves them.
//
// Example: Rate 50, Burst 10, ForegroundReserve 80, MaxQueue 100. Of 1000 background
// calls made at once, 2 are sent, 20 wait and the rest fails with ErrLocalCapacity. 100
// foreground calls made right after: 8 are sent, 90 wait, and the others take the
// places of the 10 youngest background waiters. The last of them is sent after
// (92 + 92/20) / 50 s = 1.93 s; without background work it were 1.8 s. 4 background
// calls are sent meanwhile, the rest after that.
//
// Invariants, at every moment:
//
//   - tokens taken since time t <= Burst + Rate * (now - t), but for reconnects and
//     unsubscriptions, which are charged without waiting;
//   - waiting <= MaxQueue, background waiting <= its places;
//   - a foreground call is refused only if every place but at most one is taken by
//     foreground calls;
//   - for each class arrived = admitted + refused + cancelled + waiting.
//
// A batch larger than Burst collects its tokens in portions of a full bucket before
// it is sent. What it has collected is forfeited if it is cancelled.
//
// It is no concurrency limit and knows nothing of endpoints: all clients that share it
// are paused together (see governor_pause.go). All methods are safe for concurrent use.
type Governor struct {
	cfg    GovernorConfig
	clock  mclock.Clock
	opens  mclock.AbsTime // background work begins here (StartupJitter)
	random func() float64 // [0, 1), for jitter; safe for concurrent use

	pausing atomic.Bool // some back-off is in force, see answered

	mu      sync.Mutex
	now     mclock.AbsTime // the latest time seen, never runs backwards
	bucket  *rate.Limiter  // only used with mu held, so that look and take are one step
	classes [numGovernorClasses]governorQueue
	turn    int // tokens the foreground took while background waits, since the latter's last
	pause   governorPause
	timer   mclock.Timer // set while armed: the next time somebody can be admitted
	timerAt mclock.AbsTime
	closed  bool
	retries uint64
	others  uint64 // attempts sent to a fall-back endpoint
	merged  uint64
}

// NewGovernor creates a governor with a full bucket. The error names the field that is
// out of range.
func NewGovernor(config GovernorConfig) (*Governor, error) {
	return newGovernor(config, rand.Float64)
}

func newGovernor(config GovernorConfig, random func() float64) (*Governor, error) {
	cfg, err := config.validate()
	if err != nil {
		return nil, err
	}
	g := &Governor{
		cfg:    cfg,
		clock:  cfg.Clock,
		random: random,
		now:    cfg.Clock.Now(),
		bucket: rate.NewLimiter(rate.Limit(cfg.Rate), cfg.Burst),
	}
	g.opens = g.now.Add(time.Duration(random() * float64(cfg.StartupJitter)))

	reserve := percentUp(cfg.Burst, cfg.ForegroundReserve)
	if reserve == cfg.Burst {
		reserve-- // or the background would never start
	}
	places := cfg.MaxQueue - percentUp(cfg.MaxQueue, cfg.ForegroundReserve)
	if places == 0 && cfg.MaxQueue >= 2 {
		places = 1
	}
	g.classes[Foreground].init(0, cfg.Burst, cfg.MaxQueue)
	g.classes[Background].init(reserve, cfg.Burst, places)
	return g, nil
}

// percentUp returns percent of n, rounded up.
func percentUp(n, percent int) int {
	return int((int64(n)*int64(percent) + 99) / 100)
}

// Close ends all waiting with ErrGovernorClosed and refuses every later call. Calls
// already sent are not affected. It may be called more than once.
func (g *Governor) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()

	g.closed = true
	for class := range g.classes {
		for w := g.classes[class].head(); w != nil; w = g.classes[class].head() {
			g.settleLocked(w, governorClosed)
		}
	}
	g.stopTimerLocked()
}

// admit takes cost tokens for a call of the given class, waiting for them if there is
// a place. It returns what the later report of the answer needs (see governorPause).
// Waiting ends when ctx does, when quit is closed, or when the governor is closed, and
// nothing is held then.
//
// When nothing waits this is the whole overhead of a governed call: one lock, no
// allocation.
func (g *Governor) admit(ctx context.Context, class GovernorClass, cost int, quit <-chan struct{}) (epoch uint64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	w, epoch, err := g.enter(ctx, class, cost)
	if err != nil {
		governorMetrics[class].refused.Inc(1)
		return 0, err
	}
	if w == nil {
		governorMetrics[class].admitted.Inc(1)
		return epoch, nil
	}
	governorMetrics[class].waiting.Inc(1)
	err = g.wait(ctx, w, quit)
	governorMetrics[class].waiting.Dec(1)
	return w.epoch, err
}

// enter admits, queues (w is not nil) or refuses a call without blocking.
func (g *Governor) enter(ctx context.Context, class GovernorClass, cost int) (w *governorWaiter, epoch uint64, err error) {
	g.mu.Lock()
	q := &g.classes[class]
	q.arrived++
	if !g.closed && g.takeLocked(class, cost) {
		q.admitted++
		epoch = g.pause.epoch
		g.mu.Unlock()
		return nil, epoch, nil
	}
	w, reason := g.queueLocked(ctx, class, cost)
	queued := g.waitingLocked()
	g.mu.Unlock()

	if w == nil {
		err = &GovernorError{Class: class, Reason: reason, Queued: queued, MaxQueue: g.cfg.MaxQueue}
	}
	return w, 0, err
}

// takeLocked admits a call on the spot: nobody before it in line, and the tokens there.
func (g *Governor) takeLocked(class GovernorClass, cost int) bool {
	q := &g.classes[class]
	if cost > q.portion || q.len() > 0 || g.waitsForLocked(class) > 0 {
		return false
	}
	if g.waitingLocked() == 0 {
		return g.trySpendLocked(class, q.floor, cost)
	}
	// Foreground must not slip past a background call whose turn it is, nor
	// background past a foreground call.
	next := g.nextLocked()
	if next != nil && (class == Background || g.turnDueLocked(next)) {
		return false
	}
	if !g.trySpendLocked(class, q.floor, cost) {
		return false
	}
	if next != nil && g.turnDueLocked(next) {
		g.dispatchLocked() // it may use the reserve now: sooner than the timer thinks
	}
	return true
}

// queueLocked gives a call a place, if need be that of the youngest background waiter.
func (g *Governor) queueLocked(ctx context.Context, class GovernorClass, cost int) (*governorWaiter, GovernorReason) {
	q, bg := &g.classes[class], &g.classes[Background]
	switch {
	case g.closed:
		q.refused++
		return nil, GovernorClosed
	case q.len() >= q.places:
		q.refused++
		return nil, GovernorQueueFull
	case g.waitingLocked() >= g.cfg.MaxQueue:
		// The oldest background waiter stays: it is the one whose turn comes.
		if class == Background || bg.len() < 2 {
			q.refused++
			return nil, GovernorQueueFull
		}
		g.settleLocked(bg.tail(), governorDisplaced)
	}
	w := &governorWaiter{class: class, cost: cost, ready: make(chan struct{})}
	w.lastCall = g.lastCall(ctx)
	q.push(w)
	g.dispatchLocked()
	return w, 0
}

// lastCall returns the latest time at which it makes sense to send a call that had to
// wait, 0 if there is no limit. It is a little before the deadline of ctx: on a stream
// the deadline bounds the write too, and a write that is cut half-way ends the
// connection with every subscription on it.
func (g *Governor) lastCall(ctx context.Context) mclock.AbsTime {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	left := time.Until(deadline)
	margin := left / 10
	if margin > maxWriteMargin {
		margin = maxWriteMargin
	}
	return g.now.Add(left - margin)
}

// maxWriteMargin is the time left for writing a call that has waited.
const maxWriteMargin = 100 * time.Millisecond

// wait returns once w is settled, or settles it when its caller or its client is gone.
func (g *Governor) wait(ctx context.Context, w *governorWaiter, quit <-chan struct{}) error {
	m := &governorMetrics[w.class]
	var gone error
	select {
	case <-w.ready:
	case <-ctx.Done():
		gone = ctx.Err()
	case <-quit:
		gone = ErrClientQuit
	}
	if gone != nil {
		g.leave(w)
	}
	// From here on w is settled and its fields are ours.
	switch w.outcome {
	case governorGranted:
		m.admitted.Inc(1)
		m.waited.Inc(1)
		// The grant may have met the end of the context. The call must not begin
		// then: its write would be cut off.
		if gone == nil {
			gone = ctx.Err()
		}
		return gone
	case governorLeft:
		m.cancelled.Inc(1)
		return gone
	case governorExpired:
		m.cancelled.Inc(1)
		return context.DeadlineExceeded
	case governorDisplaced:
		m.refused.Inc(1)
		return &GovernorError{Class: w.class, Reason: GovernorQueueFull, Displaced: true, Queued: g.cfg.MaxQueue, MaxQueue: g.cfg.MaxQueue}
	default:
		m.refused.Inc(1)
		return &GovernorError{Class: w.class, Reason: GovernorClosed, MaxQueue: g.cfg.MaxQueue}
	}
}

// leave gives up the place of w unless it has been settled at the same moment.
func (g *Governor) leave(w *governorWaiter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w.outcome == governorWaiting {
		g.settleLocked(w, governorLeft)
		g.dispatchLocked() // who was behind it may need less
	}
}

// charge takes n tokens at once, into debt if need be: for what can neither wait nor be
// refused, and yet is work for the endpoint.
func (g *Governor) charge(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := bucketTime(g.timeLocked())
	for ; n > g.cfg.Burst; n -= g.cfg.Burst {
		g.bucket.ReserveN(now, g.cfg.Burst)
	}
	g.bucket.ReserveN(now, n)
}
