// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"slices"
	"sync"
	"time"
)

// callWorkers run the messages of streams in goroutines that are used again.
//
// A new goroutine begins with a small stack. A call of the EVM needs one of 32 KiB, so it
// is moved two or three times on the way down, each time with all frames that lie in it:
// a tenth of the processor time of a small eth_call. A goroutine that has run a call
// has its stack already.
//
// # Model
//
// A message is given to the worker that has been idle for the shortest time, since what
// it has used last is still in the processor's caches and the collector, which halves
// the stacks of those that use little of them, has not met it yet. If none is idle a new
// one starts. One that has done rests, unless idleWorkers rest already. After restTime
// as many end as have not been needed since it began: 300 clients that subscribe at once
// and leave bring up to 64 workers to rest, and 2 s later all but what others use are gone.
//
// # Invariants
//
//   - No message waits for a worker: how many run at a time is for the gate and the
//     connections' windows to say.
//   - While no stream is open no worker rests.
//   - A resting worker refers to nothing of what it has run.
//
// The zero value is ready for use.
type callWorkers struct {
	mu      sync.Mutex
	streams int           // that are open
	idle    []*callWorker // the last to rest last
	spare   int           // fewest that rested since retire looked
	timer   *time.Timer   // of retire; nil: nobody rests
}

// idleWorkers is how many workers rest at most. As many calls as end before the next
// begins find a place: with closed loops of any number of connections about as many as
// there are processors.
const idleWorkers = 64

// restTime is how long a worker rests that is not needed, at least; at most twice as long.
const restTime = time.Second

// callWorker is a goroutine that serves one message after another.
type callWorker struct {
	next chan streamWork // closed: it ends
}

// streamWork is a message of a stream and what serves it.
type streamWork struct {
	h  *handler
	m  *messageScope
	fn func(*callProc)
}

// open says that a stream is open, until closed is called.
func (p *callWorkers) open() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streams++
}

// closed says that a stream has closed. Calls of it that still run, since it was the
// server that closed it, may bring workers to rest for as long as others are open.
func (p *callWorkers) closed() {
	p.mu.Lock()
	var idle []*callWorker
	if p.streams--; p.streams == 0 {
		idle, p.idle = p.idle, nil
		if p.timer != nil {
			p.timer.Stop()
			p.timer = nil
		}
	}
	p.mu.Unlock()
	for _, w := range idle {
		close(w.next)
	}
}

// run has work done by another goroutine.
func (p *callWorkers) run(work streamWork) {
	p.mu.Lock()
	var w *callWorker
	if last := len(p.idle) - 1; last >= 0 {
		w, p.idle[last] = p.idle[last], nil
		p.idle = p.idle[:last]
		p.spare = min(p.spare, last)
	}
	p.mu.Unlock()
	if w == nil {
		w = &callWorker{next: make(chan streamWork, 1)}
		go w.work(p)
	}
	w.next <- work // never blocks: who is idle has been given nothing yet
}

func (w *callWorker) work(p *callWorkers) {
	for work := range w.next {
		work.serve()
		work = streamWork{} // or it would be kept until there is more to do
		if !p.rest(w) {
			return
		}
	}
}

// rest makes a worker that has done available, or returns false if it must end.
func (p *callWorkers) rest(w *callWorker) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.streams == 0 || len(p.idle) >= idleWorkers {
		return false
	}
	p.idle = append(p.idle, w)
	if p.timer == nil {
		p.spare = 0
		p.timer = time.AfterFunc(restTime, p.retire)
	}
	return true
}

// retire ends the workers that were not needed, those that have rested for longest.
func (p *callWorkers) retire() {
	p.mu.Lock()
	n := min(p.spare, len(p.idle)) // fewer if the last stream has closed meanwhile
	ended := slices.Clone(p.idle[:n])
	p.idle = slices.Delete(p.idle, 0, n)
	p.spare = len(p.idle)
	switch {
	case p.timer == nil:
	case p.spare > 0:
		p.timer.Reset(restTime)
	default:
		p.timer = nil
	}
	p.mu.Unlock()
	for _, w := range ended {
		close(w.next)
	}
}

// serve is what upstream's startCallProc does in its goroutine.
func (w *streamWork) serve() {
	defer w.h.callWG.Done()
	ctx, cancel := context.WithCancel(w.h.rootCtx)
	defer cancel()
	w.m.cp.ctx = ctx
	w.m.serve(w.h, &w.m.cp, w.fn)
}
