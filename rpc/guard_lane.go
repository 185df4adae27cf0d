// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
)

const (
	// laneFree is what a connection may send in one go before the rest of it is
	// bulk, in bytes; laneRate what it may send for ever, in bytes a second.
	laneFree = 16 << 10
	laneRate = 1 << 20

	// laneHeader is how long the header of an HTTP/1 request is before the rest of
	// it is bulk, whatever the connection's rate: in bytes, twice what browsers
	// and proxies send.
	laneHeader = 8 << 10

	// laneTick is how often the lane's time is dealt out while somebody waits.
	laneTick = time.Millisecond

	// laneTurn is how long a turn lasts while there is more to read, laneOver how
	// long it lasts at most: a reader that has gone on to run a method does not
	// come back for the next read.
	laneTurn = laneTick / 2
	laneOver = laneTick

	// laneArrears is how much time that was not used because the timer came late
	// is made up for.
	laneArrears = 5 * time.Millisecond
)

// readLane has connections that send much take turns at being read, so that those
// which send little are read at once.
//
// # Model
//
// Go runs what is ready first come first served, each for up to 10 ms. A call is
// ready several times before it is answered (its connection, its method, its
// writer), so 40 connections that always have more to read make each call wait for
// 400 ms, and 2000 that are ready with 16 KiB each for 100 ms, several times over.
// What one of them costs is bounded by the byte budget in memory, and by nothing in
// time.
//
// So a connection that sends more than laneFree at once and more than laneRate
// after that, or a header beyond laneHeader, may go on with what was read only in
// its turn. Turns are handed out round-robin over clients, in order within one
// client; as many connections have one at a time as there are lanes, half the
// processors. A turn ends when there is nothing more to read, and after laneTurn.
// While somebody waits, all turns together take at most half of each lane's time.
// What nobody waits for is not slowed down.
//
// The bytes are read first and the turn comes after: a connection never waits for
// its client while it has a turn, and nobody is asked whether there is something
// to read.
//
// # Invariants
//
//   - At most width seats have a turn; those that wait have none (TestLaneModel).
//   - While there is a waiter, a turn ends after laneOver whatever its holder does.
//   - A client waits at most one turn of each other waiting client for each of its
//     own connections in front.
//   - A seat that left neither has a turn nor waits, and a turn that ends is never
//     lost: the next waiter has it at once or at the next tick.
//
// # Non-goals
//
// The lane bounds neither bytes nor connections; the byte budget and the table of
// connections do. It knows nothing of messages: what a method does with them is the
// gate's business.
//
// # Worked example
//
// 2 processors, 1 lane; 2000 connections send headers of 64 KiB, 4 KiB a read, 20
// us each. After 8 KiB each waits for its turn, in which it gets on by what has
// come: 14 reads a connection, 0.56 s of work. That is spread over 1.1 s, in which
// one goroutine of them is ready at any time instead of 2000.
type readLane struct {
	clock mclock.Clock
	width int

	waits atomic.Uint64 // turns that were waited for

	mu      sync.Mutex
	turns   linkedList[*laneSeat]   // those that have one, the oldest first
	ring    linkedList[*laneClient] // clients that wait, the next one first
	clients map[clientKey]*laneClient
	waiting int
	ticking bool
	ticked  mclock.AbsTime
	left    time.Duration // of the lanes' time until the next tick; may be overdrawn
}

// laneClient is a client with connections that wait.
type laneClient struct {
	seats linkedList[*laneSeat]
	node  listNode[*laneClient]
}

// laneSeat is the place of one connection in the lane. Its methods may be called on a
// nil seat, which never waits.
type laneSeat struct {
	lane *readLane
	key  clientKey

	// Of whoever reads: one goroutine, but for a moment when a connection ends.
	credit atomic.Int64
	filled atomic.Int64 // mclock.AbsTime
	since  atomic.Int64 // of the turn; mclock.AbsTime

	head  atomic.Int64 // bytes of the request header being read; negative: none is
	state atomic.Int32

	// Guarded by lane.mu, as is writing state.
	node  listNode[*laneSeat] // in turns, or among its client's
	begun mclock.AbsTime      // the turn
	wake  chan struct{}
}

const (
	laneOut = iota
	laneWaiting
	laneGranted // has a turn, and may not know yet
	laneRunning
)

// newReadLane returns a lane for as many readers at a time as half the processors.
func newReadLane(clock mclock.Clock) *readLane {
	return &readLane{clock: clock, width: max(1, runtime.GOMAXPROCS(0)/2), clients: make(map[clientKey]*laneClient)}
}

// seat returns the place of a new connection, on which a request header is expected.
func (l *readLane) seat(key clientKey) *laneSeat {
	s := &laneSeat{lane: l, key: key}
	s.node.of = s
	s.credit.Store(laneFree)
	return s
}

// header notes that a request header is expected next, or that none is.
func (s *laneSeat) header(expected bool) {
	if s == nil {
		return
	}
	if expected {
		s.head.Store(0)
	} else {
		s.head.Store(-1)
	}
}

// pass is called with the number of bytes that were just read, and waits for a turn
// if they are bulk. http1 tells whether request headers are lines.
func (s *laneSeat) pass(n int, http1 bool) {
	if s == nil || !s.bulk(n, http1) {
		return
	}
	l := s.lane
	wake := l.enter(s)
	if wake == nil {
		return
	}
	l.waits.Add(1)
	<-wake
	// The turn counts from here: how long the scheduler took is not the reader's
	// doing, and turns that end meanwhile would only make more readers ready.
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.state.Load() == laneGranted {
		s.begun = l.clock.Now()
		s.since.Store(int64(s.begun))
		s.state.Store(laneRunning)
	}
}

// enter returns nil if the seat has a turn already or gets one at once. Else it waits
// for one, and the channel is closed when it need not any more.
func (l *readLane) enter(s *laneSeat) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case s.state.Load() != laneOut: // its own still, or another reader's of a connection that ends
		return nil
	case l.turns.n < l.width && l.waiting == 0:
		l.beginLocked(s, laneRunning)
		s.since.Store(int64(s.begun))
		return nil
	}
	s.wake = make(chan struct{})
	l.waitLocked(s)
	return s.wake
}

// more reports whether the turn goes on if there is more to read at once. It must be
// called by the reader; after false, or when there is nothing, the reader must leave.
func (s *laneSeat) more() bool {
	return s != nil && s.state.Load() == laneRunning && s.lane.clock.Now().Sub(mclock.AbsTime(s.since.Load())) < laneTurn
}

// bulk reports whether n bytes more are to be read in turn.
func (s *laneSeat) bulk(n int, http1 bool) bool {
	long := false
	if h := s.head.Load(); h >= 0 && http1 {
		s.head.CompareAndSwap(h, h+int64(n))
		long = h+int64(n) > laneHeader
	}
	credit := s.credit.Load()
	if credit < int64(n) {
		now := s.lane.clock.Now()
		gain := min(now.Sub(mclock.AbsTime(s.filled.Swap(int64(now)))), time.Second)
		credit = min(laneFree, credit+int64(gain)*laneRate/int64(time.Second))
	}
	over := credit < int64(n)
	s.credit.Store(max(0, credit-int64(n))) // nothing is owed for what is waited for
	return over || long
}

// leave ends the connection's turn, or its waiting for one. It may be called at any
// time by anybody.
func (s *laneSeat) leave() {
	if s == nil || s.state.Load() == laneOut {
		return
	}
	l := s.lane
	l.mu.Lock()
	defer l.mu.Unlock()
	switch s.state.Load() {
	case laneWaiting:
		l.unlistLocked(s)
		l.waiting--
		s.state.Store(laneOut)
		close(s.wake)
	case laneGranted, laneRunning:
		l.endLocked(s, l.clock.Now())
		l.grantLocked()
	}
}

func (l *readLane) beginLocked(s *laneSeat, state int32) {
	l.turns.pushBack(&s.node)
	s.begun = l.clock.Now()
	s.state.Store(state)
}

func (l *readLane) endLocked(s *laneSeat, now mclock.AbsTime) {
	l.turns.remove(&s.node)
	if s.state.Load() == laneRunning && l.ticking {
		// No more than a turn has: what goes beyond is the machine's doing, or a
		// method's.
		l.left -= min(now.Sub(max(s.begun, l.ticked)), laneOver)
	}
	s.state.Store(laneOut)
}

func (l *readLane) waitLocked(s *laneSeat) {
	c := l.clients[s.key]
	if c == nil {
		c = new(laneClient)
		c.node.of = c
		l.clients[s.key] = c
		l.ring.pushBack(&c.node)
	}
	c.seats.pushBack(&s.node)
	s.state.Store(laneWaiting)
	l.waiting++
	if !l.ticking {
		l.ticking, l.ticked = true, l.clock.Now()
		l.left = l.shareOf(laneArrears)
		l.clock.AfterFunc(laneTick, l.tick)
	}
	l.grantLocked()
}

func (l *readLane) unlistLocked(s *laneSeat) {
	c := l.clients[s.key]
	c.seats.remove(&s.node)
	if c.seats.n == 0 {
		l.ring.remove(&c.node)
		delete(l.clients, s.key)
	}
}

// grantLocked gives turns away as long as there are lanes, time and waiters.
func (l *readLane) grantLocked() {
	for l.waiting > 0 && l.turns.n < l.width && l.left > 0 {
		c := l.ring.front()
		s := c.seats.front()
		l.ring.remove(&c.node)
		l.ring.pushBack(&c.node)
		l.unlistLocked(s)
		l.waiting--
		l.beginLocked(s, laneGranted)
		close(s.wake)
	}
}

// shareOf is how much of d turns may take.
func (l *readLane) shareOf(d time.Duration) time.Duration { return d * time.Duration(l.width) / 2 }

// tick deals out the time since the last one.
func (l *readLane) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	for n := l.turns.first; n != nil; {
		s := n.of
		n = n.next
		if s.state.Load() == laneRunning && now.Sub(s.begun) >= laneOver {
			l.endLocked(s, now)
		}
	}
	passed := min(now.Sub(l.ticked), laneArrears)
	l.left = min(l.left+l.shareOf(passed), l.shareOf(laneArrears))
	l.ticked = now
	l.grantLocked()
	if l.ticking = l.waiting > 0; l.ticking {
		l.clock.AfterFunc(laneTick, l.tick)
	}
}
