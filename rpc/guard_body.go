// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
)

// Causes for which a request body is refused, besides a *budgetError.
var (
	errBodyIdle     = errors.New("request body stalled")
	errBodySlow     = errors.New("request body took too long")
	errBodyTooLarge = errors.New("request body too large")
	errBodyShutdown = errServerStops
)

// longPast is the only deadline that is ever set on a body. A future one would
// replace the server's own, and with it the bound on the whole request: a client
// that sends a byte every 9 s would be renewed for months.
var longPast = time.Unix(1, 0)

// bodyConfig says how one request body is read.
type bodyConfig struct {
	limit    int64         // largest body in bytes
	maxBatch int           // elements of a batch, 0: any number
	idle     time.Duration // longest pause, 0: any
	absolute time.Duration // longest time for the whole body, 0: any
}

// bodyReader takes in one request body, of which it holds only what has been
// charged and received.
//
// Each step of 64 KiB is charged before its bytes are read, so that a stalled
// sender pins one step and no more, and nothing is allocated for what a header
// declares: buffers of 1, 4, 16 and then 64 KiB are added as they fill up. Where
// a length is declared the last step is charged exactly, small bodies with it.
// At the end the charge is trimmed to what is kept.
//
// 5 MiB declared and 64 bytes sent are charged 64 KiB and hold 1 KiB. A call of
// 200 bytes is charged 200. 4.9 MiB of `[0,0,0,...]` under a limit of 1000
// elements hold 2 KiB: what follows the 1001st is read and dropped.
//
// The body is complete before anything looks at it, so a refusal finds the
// answer unwritten. It is no io.Reader of the connection for the method's sake:
// JSON-RPC parses whole messages anyway.
type bodyReader struct {
	cfg   bodyConfig
	src   io.Reader
	watch *bodyWatch
	mem   *charge

	declared int64 // bytes still to come by Content-Length, -1: unknown
	read     int64 // bytes taken from src
	charged  int64 // bytes charged, all kept ones and at most one step ahead
	scan     batchScanner
	kept     chunkBuffer
}

// readBody reads src to its end. declared is its Content-Length, -1 if unknown;
// mem pays for it; watch, which may be nil, times it.
//
// The error is a *budgetError, one of the causes above, or src's own, and comes
// with what was kept until then. mem then holds nothing if it was refused, and
// is the caller's to close in any case.
func readBody(src io.Reader, declared int64, cfg bodyConfig, mem *charge, watch *bodyWatch) (*chunkBuffer, error) {
	b := &bodyReader{cfg: cfg, src: src, watch: watch, mem: mem, declared: declared}
	return b.readAll()
}

// readAll does what readBody says.
func (b *bodyReader) readAll() (*chunkBuffer, error) {
	b.scan.limit = b.cfg.maxBatch
	err := b.run()
	if err == io.EOF {
		err = nil
		if b.scan.tooMany() {
			b.kept.closeBatch()
		}
		b.kept.oversized = b.scan.over()
		if b.charged != b.kept.size() {
			b.mem.trim(b.kept.size())
		}
	}
	return &b.kept, err
}

func (b *bodyReader) run() error {
	for {
		if b.declared == 0 || b.read == b.cfg.limit {
			if err := b.probe(); err != nil {
				return err
			}
		}
		dst, err := b.space()
		if err != nil {
			return err
		}
		n, err := b.watch.readFrom(b.src, dst)
		b.took(dst[:n])
		if err != nil {
			return err
		}
	}
}

// probe looks for the end where it must be. A byte instead of it is one beyond
// the limit, or else shows the declared length to be wrong.
func (b *bodyReader) probe() error {
	var one [1]byte
	n, err := b.watch.readFrom(b.src, one[:])
	if n == 0 || (err != nil && err != io.EOF) {
		return err
	}
	if b.read == b.cfg.limit {
		return errBodyTooLarge
	}
	b.declared = -1
	dst, cerr := b.space()
	if cerr != nil {
		return cerr
	}
	b.took(dst[:copy(dst, one[:])])
	return err
}

// space returns where the next bytes go, all of it charged.
func (b *bodyReader) space() ([]byte, error) {
	most := b.cfg.limit - b.read
	if b.declared >= 0 {
		most = min(most, b.declared)
	}
	if b.scan.tooMany() {
		return b.kept.scratch(most), nil
	}
	if b.charged == b.kept.size() {
		step := min(budgetStep, most)
		if err := b.mem.grow(step); err != nil {
			return nil, err
		}
		b.charged += step
	}
	return b.kept.space(min(most, b.charged-b.kept.size())), nil
}

// took accounts for bytes that were read into what space returned.
func (b *bodyReader) took(p []byte) {
	b.read += int64(len(p))
	if b.declared > 0 {
		b.declared -= int64(len(p))
	}
	if !b.scan.tooMany() {
		b.kept.extend(b.scan.feed(p))
	}
}

// bodyWatch times the reading of one request body and can cut it short.
//
// One timer serves both bounds. It fires at the next moment at which one could
// be passed, at the latest after watchPeriod, and then either arms itself anew or
// stops the body: under mu, and only while the body is still being read, it sets
// a deadline in the past. So a timer that is late finds the body done and leaves
// the next read on the connection alone, and nothing is armed while the method
// runs. A cause once set sticks, even if the last byte came in the same moment;
// otherwise the method would run on a connection whose deadline has passed.
type bodyWatch struct {
	mu       sync.Mutex
	clock    mclock.Clock
	ctx      context.Context // ends with the server or the client
	idle     time.Duration
	absolute time.Duration
	cut      func(time.Time) error // sets the read deadline; nil: conn's
	conn     http.ResponseWriter
	dry      bool // note the cause, cut nothing
	began    mclock.AbsTime
	last     mclock.AbsTime // when bytes came last
	timer    mclock.Timer   // its own; nil: shared has one for many
	done     bool
	cause    error
	would    error // what would have cut it in a dry run

	shared *bodyTimer
	place  bodyPlace // in shared, which guards it
}

// watchPeriod is how soon a body notices that the server shuts down.
const watchPeriod = time.Second

// watchBody starts the clock for a body, with a timer of its own. cut sets the read
// deadline of what it is read from. stop must be called.
func watchBody(ctx context.Context, clock mclock.Clock, cfg bodyConfig, cut func(time.Time) error) *bodyWatch {
	w := new(bodyWatch)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
	now := w.beginLocked(ctx, clock, cfg)
	w.timer = clock.AfterFunc(w.nextLocked(now).Sub(now), w.fired)
	return w
}

func (w *bodyWatch) beginLocked(ctx context.Context, clock mclock.Clock, cfg bodyConfig) mclock.AbsTime {
	now := clock.Now()
	w.clock, w.ctx, w.idle, w.absolute, w.began, w.last = clock, ctx, cfg.idle, cfg.absolute, now, now
	w.done, w.cause, w.would = false, nil, nil
	return now
}

// fail cuts the body short for the given cause. It does nothing once the body is
// done or was cut already.
func (w *bodyWatch) fail(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failLocked(cause)
}

// stop ends the watch and returns what cut the body short, if anything did. No
// deadline is touched after it has returned. It may be called again.
func (w *bodyWatch) stop() error {
	w.mu.Lock()
	cause, timer, again := w.cause, w.timer, w.done
	w.done = true
	w.mu.Unlock()
	switch {
	case timer != nil:
		timer.Stop()
	case !again || w.dry:
		w.shared.remove(w)
	}
	return cause
}

// forget lets go of what the watch knows of its body, so that it can be reused.
func (w *bodyWatch) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ctx, w.conn, w.cause, w.would = nil, nil, nil, nil
}

// readFrom reads once from src. A read that was cut short fails with its cause.
func (w *bodyWatch) readFrom(src io.Reader, p []byte) (int, error) {
	n, err := src.Read(p)
	if w == nil {
		return n, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.cause != nil:
		return n, w.cause
	case err != nil && !w.dry && errors.Is(err, os.ErrDeadlineExceeded):
		// The server's own deadline: it started before the headers were read,
		// so it may pass before ours.
		w.cause = errBodySlow
		return n, w.cause
	}
	if n > 0 && err == nil { // at the end nobody asks any more
		w.last = w.clock.Now()
	}
	return n, err
}

// fired is the function of a timer of its own.
func (w *bodyWatch) fired() {
	if next := w.look(w.clock.Now()); next != 0 {
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.done {
			w.timer = w.clock.AfterFunc(next.Sub(w.clock.Now()), w.fired)
		}
	}
}

// look cuts the body short if one of its bounds has been passed, or returns when to
// look again; 0: there is no need to.
func (w *bodyWatch) look(now mclock.AbsTime) (next mclock.AbsTime) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done || w.cause != nil {
		return 0
	}
	switch {
	case w.idle > 0 && now.Sub(w.last) >= w.idle:
		w.failLocked(errBodyIdle)
	case w.absolute > 0 && now.Sub(w.began) >= w.absolute:
		w.failLocked(errBodySlow)
	case errors.Is(context.Cause(w.ctx), errBodyShutdown):
		w.failLocked(errBodyShutdown)
	default:
		return w.nextLocked(now)
	}
	return 0
}

// nextLocked returns the next moment at which a bound could be passed.
func (w *bodyWatch) nextLocked(now mclock.AbsTime) mclock.AbsTime {
	next := now.Add(watchPeriod)
	if w.idle > 0 {
		next = min(next, w.last.Add(w.idle))
	}
	if w.absolute > 0 {
		next = min(next, w.began.Add(w.absolute))
	}
	return next
}

func (w *bodyWatch) failLocked(cause error) {
	if w.done || w.cause != nil {
		return
	}
	if w.dry {
		w.would = cause
		w.done = true
		return
	}
	w.cause = cause
	if w.cut != nil {
		w.cut(longPast)
	} else {
		http.NewResponseController(w.conn).SetReadDeadline(longPast)
	}
}
