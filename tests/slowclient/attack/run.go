// SPDX-License-Identifier: LGPL-3.0-or-later

package attack

import (
	"context"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"rpcguard/tests/slowclient/rig"
)

// Run is what a case works with.
type Run struct {
	Ctx    context.Context
	Node   *rig.Node
	Polite *rig.Polite
	Setup  *rig.PoliteSetup
	Watch  *rig.Watch
	Base   rig.PoliteReport // of the same binary unloaded
	Period time.Duration    // of a block
	Quick  bool

	suite   *Suite
	heap    int64 // allocated before the case
	mu      sync.Mutex
	figures []Figure
	reasons []string
	flows   bool // as its case says
	soft    int  // of the reasons: a latency, which the machine may be guilty of
	ran     bool // something showed that the attack reached the server
	unseen  []string
	na      string
	closers []func()
	reports []func(rig.PoliteReport)
}

// Guarded reports whether the node carries rpcguard.
func (r *Run) Guarded() bool { return r.Node.Binary != nil && r.Node.Binary.Guarded() }

// OnReport has f judge what the polite client saw, once the case is over.
func (r *Run) OnReport(f func(rig.PoliteReport)) {
	r.mu.Lock()
	r.reports = append(r.reports, f)
	r.mu.Unlock()
}

// Arrived says how much of the attack is known to have reached the server. With less
// than want the case is broken whatever else it saw: an attack that did not run proves
// nothing. Every case calls it, or a helper that does.
func (r *Run) Arrived(what string, n, want int) {
	r.mu.Lock()
	r.ran = true
	r.mu.Unlock()
	if n < want {
		r.Break("attack did not run: %d of %d %s", n, want, what)
	}
}

// Working is Arrived for work: it waits until the node's processors show it.
func (r *Run) Working(what string) {
	if r.Node.Pid == 0 {
		r.notSeen("processors")
		r.Arrived(what, 1, 1)
		return
	}
	n := 0
	if r.Node.Busy(r.Ctx, 10*time.Second) {
		n = 1
	}
	r.Arrived(what, n, 1)
}

// WorkingMeanwhile is Working beside what the case does next; the function it returns
// waits for the outcome.
func (r *Run) WorkingMeanwhile(what string) (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Working(what)
	}()
	return func() { <-done }
}

// Goroutines is Arrived for connections and streams: it waits until the server has n
// goroutines more than before. Some may have ended again by then: ask for a part.
func (r *Run) Goroutines(what string, before, n int) {
	if before < 0 {
		r.notSeen("goroutines")
		r.Arrived(what, n, n)
		return
	}
	got := 0
	rig.Until(r.Ctx, 10*time.Second, func() bool {
		if now := r.Node.Goroutines(); now >= 0 {
			got = max(got, now-before)
		}
		return got >= n
	})
	r.Arrived(what, min(got, n), n)
}

// notSeen notes a bound that cannot be judged here: a running node that somebody else
// started is seen from outside only.
func (r *Run) notSeen(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.unseen, what) {
		r.unseen = append(r.unseen, what)
	}
}

// Attacker returns the dialer of the i-th attacking client.
func (r *Run) Attacker(i int) rig.Dialer { return r.Node.Attacker(i) }

// OnClose has f called when the case has ended, last first.
func (r *Run) OnClose(f func()) {
	r.mu.Lock()
	r.closers = append(r.closers, f)
	r.mu.Unlock()
}

// For sleeps while the attack goes on, unless the node ends.
func (r *Run) For(d time.Duration) {
	select {
	case <-time.After(d):
	case <-r.Ctx.Done():
	case <-r.Node.Done():
	}
}

// Scale picks the quick set's or the full set's amount.
func (r *Run) Scale(quick, full int) int {
	if r.Quick {
		return quick
	}
	return full
}

// Seconds is Scale for time.
func (r *Run) Seconds(quick, full int) time.Duration {
	return time.Duration(r.Scale(quick, full)) * time.Second
}

// Parallel runs f(0..n-1) at once and waits for all.
func Parallel(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// abandonAfter is how much longer a case may take whose node was ended; then the suite
// goes on without it.
const abandonAfter = 30 * time.Second

// performed runs the case and reports whether it ended in time.
func (r *Run) performed(c *Case, limit time.Duration) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.perform(c)
	}()
	select {
	case <-done:
		return true
	case <-time.After(limit):
		return false
	}
}

// close undoes what the case opened, last first.
func (r *Run) close() {
	r.mu.Lock()
	closers := r.closers
	r.closers = nil
	r.mu.Unlock()
	for _, f := range slices.Backward(closers) {
		f()
	}
}

func (r *Run) perform(c *Case) {
	defer func() {
		switch v := recover().(type) {
		case nil, stopCase:
		default:
			r.Break("the case itself failed: %v %s", v, firstLines(debug.Stack(), 12))
		}
	}()
	c.Run(r)
}

func firstLines(b []byte, n int) string {
	l := strings.Split(string(b), "\n")
	return strings.Join(l[:min(n, len(l))], " | ")
}
