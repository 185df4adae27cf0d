// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import "sync"

// streamWindow bounds what one stream connection may have going: calls in flight,
// and messages read ahead of them.
//
// # Model
//
// A message with calls in it takes one slot when it is started and gives it back
// when its last reply has been written; a batch is one. With all slots taken,
// messages are read but not started, until so many are ahead or they hold so many
// bytes; then reading stops, the connection's own flow control makes the client
// wait, and nothing of the node's grows any more. Messages without calls, replies
// and notices of subscriptions, need no slot and overtake those that wait for one:
// a call in flight may be waiting for just that reply.
//
// # Invariants
//
//   - At most limit messages with calls are in flight.
//   - Calls start in the order in which they were read.
//   - At most one message more than the bounds is ahead: one is read before its
//     size is known.
//   - Once failed, nothing more is started and what was ahead is dropped.
//
// # Worked example
//
// Limit 256, 1024 messages or 1 MiB ahead. A client pipelines 300000 small calls
// and reads no reply: 256 goroutines block in their writes, 1024 messages wait,
// and the rest stays in the client's and the kernel's buffers.
//
// It knows nothing of sockets; whoever reads and whoever starts calls wait on its
// channels.
type streamWindow struct {
	limit     int   // messages with calls in flight
	maxAhead  int   // messages
	maxBytes  int64 // of messages ahead
	wake      chan struct{}
	readAgain chan struct{}

	mu       sync.Mutex
	inFlight int
	high     int             // most that were in flight
	calls    []streamMessage // ahead, waiting for a slot
	others   []streamMessage // ahead, needing none
	bytes    int64           // of both
	err      error           // why nothing more is started
	last     error           // why nothing more is read
}

// streamMessage is a message, or batch, as it was read.
type streamMessage struct {
	msgs  []*jsonrpcMessage
	batch bool
	calls bool  // it needs a slot
	size  int64 // bytes it holds
}

const (
	streamAheadMessages = 1024
	streamAheadBytes    = 1 << 20
)

func newStreamWindow(limit int) *streamWindow {
	return &streamWindow{
		limit:     limit,
		maxAhead:  streamAheadMessages,
		maxBytes:  streamAheadBytes,
		wake:      make(chan struct{}, 1),
		readAgain: make(chan struct{}, 1),
	}
}

// start takes a slot if one is free and nobody waits for it.
func (w *streamWindow) start() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inFlight >= w.limit || len(w.calls) > 0 || w.err != nil {
		return false
	}
	w.takeLocked()
	return true
}

// inUse returns how many slots are taken.
func (w *streamWindow) inUse() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.inFlight
}

func (w *streamWindow) takeLocked() {
	w.inFlight++
	w.high = max(w.high, w.inFlight)
}

// done gives a slot back.
func (w *streamWindow) done() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inFlight == 0 {
		panic("rpc: in-flight slot released twice")
	}
	w.inFlight--
	if len(w.calls) > 0 {
		signal(w.wake)
	}
}

// push adds a message that was read. The reader asks full before it reads on.
func (w *streamWindow) push(m streamMessage) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return
	}
	if m.calls {
		w.calls = append(w.calls, m)
	} else {
		w.others = append(w.others, m)
	}
	w.bytes += m.size
	signal(w.wake)
}

// full reports whether no more may be read ahead.
func (w *streamWindow) full() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fullLocked()
}

func (w *streamWindow) fullLocked() bool {
	return w.err == nil && (len(w.calls)+len(w.others) >= w.maxAhead || w.bytes >= w.maxBytes)
}

// pop returns a message that may be started now, with its slot taken if it needs
// one. It returns false if there is none yet, and an error if there will be none.
func (w *streamWindow) pop() (m streamMessage, ok bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wasFull := w.fullLocked()
	switch {
	case w.err != nil:
		return m, false, w.err
	case len(w.others) > 0:
		m, w.others = popFirst(w.others)
	case len(w.calls) > 0 && w.inFlight < w.limit:
		m, w.calls = popFirst(w.calls)
		w.takeLocked()
	case len(w.calls) == 0 && w.last != nil:
		return m, false, w.last
	default:
		return m, false, nil
	}
	w.bytes -= m.size
	if wasFull && !w.fullLocked() {
		signal(w.readAgain)
	}
	return m, true, nil
}

// fail ends the connection: what is ahead is dropped.
func (w *streamWindow) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
		w.calls, w.others, w.bytes = nil, nil, 0
	}
	signal(w.wake)
	signal(w.readAgain)
}

// end says that nothing more will be read. What is ahead is still started.
func (w *streamWindow) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = err
	signal(w.wake)
}

// popFirst takes the first element and lets go of what it refers to. The array is
// reused once the last one is taken.
func popFirst(q []streamMessage) (streamMessage, []streamMessage) {
	m := q[0]
	q[0] = streamMessage{}
	if len(q) == 1 {
		return m, q[:0]
	}
	return m, q[1:]
}

// signal wakes whoever waits on c, or will.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
