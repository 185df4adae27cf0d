// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"cmp"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
)

const (
	// A connection must take stallBytes within stallWindow while something waits
	// for it.
	stallWindow = 60 * time.Second
	stallBytes  = 64 << 10

	// While more than half of the reply budget is used, those that have taken
	// nothing at all for stallPressed go, the slowest first.
	stallPressed = 10 * time.Second

	// stallTick is how often connections are looked at. The first look is up to a tick
	// after the wait has begun, so a stalled one is cut within 62 s, and within 12 s
	// under pressure.
	stallTick = time.Second

	// streamSendBuffer is the kernel's send buffer of a stream. The default grows
	// to 4 MiB for each client that does not read, which nobody counts.
	streamSendBuffer = 256 << 10
)

// stallWatch finds the connections whose clients do not take what waits for them,
// and cuts them.
//
// # Model
//
// What counts as progress is what has left the kernel's send queue, as far as the
// system tells (see sendQueue). Completed writes are no measure: to a steady
// reader of 50 KB/s with a small receive buffer they are up to 28 s apart,
// although every second some of the bytes in the queue arrive.
//
// A connection is looked at only while something waits for it, and from then on:
// one that is idle for an hour and then is sent a reply has 60 s from there. Most
// writes are over before the first look: they cost some atomic operations, no lock and
// no question to the kernel. It is
// cut when fewer than 64 KiB have left in the last 60 s; at 1.1 KB/s, nobody
// reads that slowly who means to read. While more than half of the reply budget
// is used, connections from which nothing has left for 10 s are cut, the one that
// has stood still for longest first, until half is free. Those that take something,
// but slowly, lose their replies to others that do not fit: the watch tells how fast
// a client is, the budget decides (see slowTransfer).
//
// # Worked example
//
// 64 clients ask for 25 MB each and never read; the budget is 512 MiB, of which
// they fill 384 MiB. 10 s after their buffers have filled up, six of them are cut:
// 384 - 6*25 is below 256 MiB. The next ones follow when calls of others bring the
// budget above half again, and all of them 60 s after they began.
//
// # Invariants
//
//   - A connection is cut at most once, and never while nothing waits for it.
//   - Cutting happens without locks: it closes sockets.
//
// The decision (stallState, chooseStalled) knows no sockets. It is not a bound on
// how long a reply may take: a client that reads 2 KiB/s keeps its 20 MB for three
// hours if nobody else needs that memory.
type stallWatch struct {
	clock    mclock.Clock
	pressure func() (excess int64) // bytes above half of the budget; at most 0: none

	mu    sync.Mutex
	conns map[*stallConn]struct{} // something waits for them, or did at the last look
	timer mclock.Timer            // set while conns is not empty
	cuts  uint64
	off   bool

	paces atomic.Int32 // connections whose pace is known
}

// newStallWatch returns a watch. pressure says by how many bytes the replies
// exceed half of their budget.
func newStallWatch(clock mclock.Clock, pressure func() int64) (*stallWatch, error) {
	if clock == nil || pressure == nil {
		return nil, errors.New("stall watch: clock and pressure must be set")
	}
	return &stallWatch{clock: clock, pressure: pressure, conns: make(map[*stallConn]struct{})}, nil
}

// stallConn is one connection that is, or may be, waited for.
type stallConn struct {
	watch *stallWatch
	queue sendQueue
	cut   func() // called at most once, must not wait

	waiters atomic.Int32  // writes in progress
	bytes   atomic.Int64  // that cutting would free
	waits   atomic.Uint32 // times that waiting has begun
	listed  atomic.Bool   // in watch.conns
	rate    clientPace    // at the last look

	// Guarded by watch.mu.
	seen  uint32 // of waits, at the last look
	state stallState
	done  bool
}

// sendQueue is what the watch must know of a connection.
type sendQueue interface {
	// left returns how many bytes have left towards the client so far. Only
	// differences matter.
	left() uint64
}

// conn returns a connection to be watched while something waits for it. A nil
// watch returns nil, which watches nothing.
func (w *stallWatch) conn(queue sendQueue, cut func()) *stallConn {
	if w == nil {
		return nil
	}
	return &stallConn{watch: w, queue: queue, cut: cut}
}

// begin says that n bytes wait for the connection's client from now on.
func (c *stallConn) begin(n int64) {
	if c == nil {
		return
	}
	c.bytes.Add(n)
	if c.waiters.Add(1) > 1 {
		return
	}
	c.waits.Add(1)
	// The look that takes it off the list asks for waiters after that, so one of the
	// two sees the other.
	if !c.listed.Load() {
		c.watch.list(c)
	}
}

// end says that n bytes that begin was told of have left, or never will.
func (c *stallConn) end(n int64) {
	if c == nil {
		return
	}
	c.bytes.Add(-n)
	if c.waiters.Add(-1) < 0 {
		panic("rpc: end of a write that did not begin")
	}
}

// list has the connection looked at.
func (w *stallWatch) list(c *stallConn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.done || w.off {
		return
	}
	c.listed.Store(true)
	w.conns[c] = struct{}{}
	if w.timer == nil {
		w.timer = w.clock.AfterFunc(stallTick, w.tick)
	}
}

// stop ends the watch.
func (w *stallWatch) stop() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.off = true
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
}

// stalled returns how many connections have been cut.
func (w *stallWatch) stalled() uint64 {
	if w == nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cuts
}

// tick looks at all connections for which something waits.
func (w *stallWatch) tick() {
	w.mu.Lock()
	conns := make([]*stallConn, 0, len(w.conns))
	for c := range w.conns {
		if c.waiters.Load() > 0 {
			conns = append(conns, c)
			continue
		}
		c.listed.Store(false)
		if c.waiters.Load() > 0 { // it began meanwhile, perhaps in the belief to be listed
			c.listed.Store(true)
			continue
		}
		delete(w.conns, c)
	}
	w.mu.Unlock()

	waits, left := make([]uint32, len(conns)), make([]uint64, len(conns))
	for i, c := range conns {
		waits[i] = c.waits.Load() // before the queue: a later wait begins with a later look
		left[i] = c.queue.left()
	}
	excess := w.pressure()

	w.mu.Lock()
	now := w.clock.Now()
	var looks []stallLook
	paces := int32(0)
	for i, c := range conns {
		if c.done || c.waiters.Load() == 0 || c.waits.Load() != waits[i] {
			continue // it is over, though another one may have begun
		}
		if c.seen != waits[i] {
			c.seen, c.state = waits[i], newStallState(now, left[i])
		}
		c.state.observe(now, left[i])
		if rate, known := c.state.pace(now); known && kernelTells {
			c.rate.set(waits[i], rate)
			paces++
		}
		looks = append(looks, stallLook{conn: c, verdict: c.state.judge(now), still: c.state.still(now), bytes: c.bytes.Load()})
	}
	w.paces.Store(paces)
	var cuts []func()
	for _, look := range chooseStalled(looks, excess) {
		look.conn.done = true
		delete(w.conns, look.conn)
		w.cuts++
		cuts = append(cuts, look.conn.cut)
	}
	w.timer = nil
	if len(w.conns) > 0 && !w.off {
		w.timer = w.clock.AfterFunc(stallTick, w.tick)
	}
	w.mu.Unlock()
	for _, cut := range cuts {
		cut()
	}
}

// stallLook is one connection as it looks at one moment.
type stallLook struct {
	conn    *stallConn
	verdict stallVerdict
	still   time.Duration // since something left
	bytes   int64         // that cutting it frees
}

type stallVerdict uint8

const (
	stallNo     stallVerdict = iota
	stallIfFull              // goes if memory is short
	stallYes                 // goes
)

// chooseStalled returns the connections to cut: those that must go, and, while the
// budget is excess bytes above half, of those that may the ones that have stood
// still for longest.
func chooseStalled(looks []stallLook, excess int64) []stallLook {
	var cut, may []stallLook
	for _, look := range looks {
		switch look.verdict {
		case stallYes:
			cut = append(cut, look)
			excess -= look.bytes
		case stallIfFull:
			may = append(may, look)
		}
	}
	slices.SortStableFunc(may, func(a, b stallLook) int { return cmp.Compare(b.still, a.still) })
	for _, look := range may {
		if excess <= 0 {
			break
		}
		cut = append(cut, look)
		excess -= look.bytes
	}
	return cut
}

// stallState is what is remembered of one connection's progress: how much had left
// at some moments of the last minute.
type stallState struct {
	moved mclock.AbsTime // when something was last seen to have left
	count uint64         // what had left then

	// A ring that reaches back stallWindow and a little, a mark every stallPace.
	marks [stallMarks]stallMark
	next  int // the oldest mark, which is replaced next
}

const (
	stallMarks = 13
	stallPace  = stallWindow / (stallMarks - 1)
)

type stallMark struct {
	at   mclock.AbsTime
	left uint64
}

func newStallState(now mclock.AbsTime, left uint64) stallState {
	s := stallState{moved: now, count: left}
	for i := range s.marks {
		s.marks[i] = stallMark{now, left}
	}
	return s
}

// observe notes how much has left until now.
func (s *stallState) observe(now mclock.AbsTime, left uint64) {
	if left != s.count {
		s.moved, s.count = now, left
	}
	newest := s.marks[(s.next+stallMarks-1)%stallMarks]
	if now.Sub(newest.at) >= stallPace {
		s.marks[s.next] = stallMark{now, left}
		s.next = (s.next + 1) % stallMarks
	}
}

// still returns for how long nothing has left.
func (s *stallState) still(now mclock.AbsTime) time.Duration { return now.Sub(s.moved) }

// since returns the youngest mark that is at least window old, if there is one.
func (s *stallState) since(now mclock.AbsTime, window time.Duration) (mark stallMark, ok bool) {
	for i := range s.marks {
		mark = s.marks[(s.next+stallMarks-1-i)%stallMarks] // youngest first
		if now.Sub(mark.at) >= window {
			return mark, true
		}
	}
	return stallMark{}, false
}

// judge says what should become of the connection. The mark it measures from is
// the youngest that is at least stallWindow old, so the window is never shorter
// than the client was promised, and less than 6 s longer.
func (s *stallState) judge(now mclock.AbsTime) stallVerdict {
	if mark, ok := s.since(now, stallWindow); ok && s.count-mark.left < stallBytes {
		return stallYes
	}
	if s.still(now) >= stallPressed {
		return stallIfFull
	}
	return stallNo
}

// socketOf returns the connection at the bottom of those that wrap it.
func socketOf(conn net.Conn) net.Conn {
	for {
		wrapper, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return conn
		}
		conn = wrapper.NetConn()
	}
}

// boundSendBuffer gives a stream the send buffer it is to have. A larger one would
// hide how slow its client is and hold memory that nobody counts.
func boundSendBuffer(conn net.Conn) {
	if c, ok := socketOf(conn).(interface{ SetWriteBuffer(int) error }); ok {
		c.SetWriteBuffer(streamSendBuffer)
	}
}
