// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"errors"
	"sync"
)

// flusher writes what waits in many outboxes, with as many goroutines as there are
// processors.
//
// # Model
//
// One event for a thousand subscribers makes a thousand outboxes busy at once. A
// goroutine for each of them would be a thousand wake-ups, buffers, and entries in
// the stall watch, to write what nearly every client takes at once. Here the
// outboxes queue up. A worker takes the first, collects what waits in it by then,
// and hands the kernel what fits into the send buffer, without waiting. If that is
// all of it the outbox is done with; if more waits it queues up again, behind the
// others; if the buffer is full the rest goes to a goroutine of its own, which may
// wait for as long as it takes, and the worker goes on.
//
// Nothing is held back to be written together, but what comes while an outbox
// stands in the queue is: the busier the node, the more notifications a system call
// carries.
//
// Workers end when the queue is empty. An idle flusher has none.
//
// # Worked example
//
// 1000 subscribers on 1000 connections, an announcement of a transaction every 2 ms,
// two processors; a write is 8 us of work. Writing one announcement takes the two
// workers 4 ms, so the next one or two arrive meanwhile, and in the next round every
// write carries those. The delay of the last subscriber stays at about two rounds, 8 ms.
//
// # Invariants
//
//   - An outbox has one writer at a time: a worker, or a goroutine, or a caller that
//     writes its own reply. Its writing flag says that it has one, in the queue too.
//   - A worker waits for no client.
//
// # Non-goals
//
// No order between connections is promised, and no fairness beyond one batch each.
type flusher struct {
	most int // workers at once

	mu      sync.Mutex
	ready   fifo[*outboxWriter]
	workers int
}

// newFlusher returns a flusher with at most workers goroutines.
func newFlusher(workers int) (*flusher, error) {
	if workers < 1 {
		return nil, errors.New("flusher: at least one worker is needed")
	}
	return &flusher{most: workers}, nil
}

// add queues a writer up. Its outbox's writing flag is set.
func (f *flusher) add(w *outboxWriter) {
	f.mu.Lock()
	f.ready.push(w)
	start := f.workers < f.most
	if start {
		f.workers++
	}
	f.mu.Unlock()
	if start {
		go f.work()
	}
}

// next returns the first writer of the queue. Without one the worker that asked is
// counted out.
func (f *flusher) next() *outboxWriter {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ready.len() == 0 {
		f.workers--
		return nil
	}
	return f.ready.pop()
}

func (f *flusher) work() {
	var batch *frameBatch
	for w := f.next(); w != nil; w = f.next() {
		if batch == nil {
			batch = newFrameBatch(w.o.framing)
		}
		batch.framing = w.o.framing
		w.batch, batch = batch, nil
		switch w.try() {
		case tryDone:
			batch = w.batch.reusable()
		case tryMore:
			batch, w.batch = w.batch.reusable(), nil
			f.add(w)
		case tryStuck:
			go w.run(nil)
		case tryOver:
		}
	}
	if batch != nil {
		batch.recycle()
	}
}

// tried is what became of an attempt to write without waiting.
type tried uint8

const (
	tryDone  tried = iota // nothing waits any more
	tryMore               // more waits
	tryStuck              // the writer has to wait, or to end the connection
	tryOver               // the connection is given up
)

// try sends one batch of what waits, as far as that needs no waiting.
func (w *outboxWriter) try() tried {
	o := w.o
	o.mu.Lock()
	if o.err != nil {
		o.mu.Unlock()
		return tryStuck // a last frame may have to be sent
	}
	if !w.collectLocked() {
		o.writing = false
		o.mu.Unlock()
		return tryDone
	}
	o.mu.Unlock()
	w.encode()
	done, err := o.conn.trySend(w.batch)
	if err == nil && !done {
		return tryStuck
	}
	o.mu.Lock()
	if err != nil {
		w.failAndUnlock(err)
		return tryOver
	}
	w.sentLocked()
	more := o.err != nil || w.waitsLocked()
	o.writing = more
	o.mu.Unlock()
	if more {
		return tryMore
	}
	return tryDone
}
