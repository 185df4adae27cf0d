// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"crypto/tls"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// deadlineWriter is what a socketOut needs of a connection.
type deadlineWriter interface {
	io.WriteCloser
	SetWriteDeadline(time.Time) error
}

// socketOut is a network connection as its writer sees it: whole batches go out in
// pieces of sendPiece, each of which must be taken within the timeout. A client
// that takes less than that is as good as gone. Where there is no timeout, and the
// kernel tells how far a write in progress has come, the pieces are of sendLarge.
//
// abort is the only safe way to be rid of a connection whose writer is stuck: the
// codec's own close takes the lock that the writer holds, and waits. A deadline in
// the past ends the write, closing the connection ends the read.
type socketOut struct {
	conn     deadlineWriter
	raw      syscall.RawConn // to write without waiting; nil: that cannot be done
	timeout  time.Duration   // for one piece; 0: none
	progress func(n int64)   // called after each piece; nil: nobody asks
	touched  func()          // likewise: the connection is in use
	watch    *stallConn      // told while something waits to be taken; nil: nobody watches
	tells    func() bool     // progress shows within a piece; nil: it does not

	piece int // of the first large batch on; its writer's

	mu    sync.Mutex
	armed time.Time // when the deadline was last set
	last  time.Time // no write goes on beyond it; zero: no such time
	stuck bool      // a send is going on, or has failed
}

// newSocketOut returns the writer's side of conn.
func newSocketOut(conn deadlineWriter, timeout time.Duration) *socketOut {
	s := &socketOut{conn: conn, timeout: timeout}
	if c, ok := socketUnder[syscall.Conn](conn); ok {
		s.raw, _ = c.SyscallConn()
	}
	if c, ok := socketUnder[*trackedConn](conn); ok && c.place != nil {
		s.touched = c.place.touch
	}
	return s
}

// trySend implements outboxConn. Nobody watches a client that takes at once what it
// is sent: the stall watch, whose questions to the kernel cost as much as a small
// write, hears of those that do not.
func (s *socketOut) trySend(b *frameBatch) (done bool, err error) {
	p := b.whole()
	if s.raw == nil || len(p) == 0 {
		return false, nil
	}
	s.arm()
	n, err := tryWrite(s.raw, p)
	if n > 0 {
		s.moved(int64(n))
	}
	if err == nil && n == len(p) {
		return true, nil
	}
	b.skip(n)
	if n > 0 {
		s.setStuck(true)
	}
	return false, err
}

// moved notes that n bytes were taken.
func (s *socketOut) moved(n int64) {
	if s.progress != nil {
		s.progress(n)
	}
	if s.touched != nil {
		s.touched()
	}
}

func (s *socketOut) send(b *frameBatch) error {
	s.setStuck(true)
	err := s.write(b)
	s.setStuck(err != nil)
	return err
}

func (s *socketOut) setStuck(stuck bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stuck = stuck
}

func (s *socketOut) write(b *frameBatch) error {
	bufs := b.buffers()
	size := int64(b.size)
	s.watch.begin(size)
	defer s.watch.end(size)
	if s.piece == 0 && size > sendPiece {
		s.piece = s.pieceSize()
	}
	for len(bufs) > 0 {
		var piece net.Buffers
		piece, bufs = cutBuffers(bufs, max(s.piece, sendPiece))
		s.arm()
		var (
			n   int64
			err error
		)
		if len(piece) == 1 {
			var m int
			m, err = s.conn.Write(piece[0])
			n = int64(m)
		} else {
			n, err = piece.WriteTo(vectored(s.conn))
		}
		if n > 0 {
			s.moved(n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// pieceSize returns the unit in which large batches are written.
func (s *socketOut) pieceSize() int {
	if s.timeout == 0 && s.tells != nil && s.tells() {
		return sendLarge
	}
	return sendPiece
}

// arm sets the deadline of the next piece. Setting one costs as much as a small
// write, so it is left alone while it is nearly the right one.
func (s *socketOut) arm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timeout == 0 || !s.last.IsZero() {
		return
	}
	now := time.Now()
	if now.Sub(s.armed) < s.timeout/16 {
		return
	}
	s.armed = now
	s.conn.SetWriteDeadline(now.Add(s.timeout))
}

func (s *socketOut) hurry(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if end := time.Now().Add(d); s.last.IsZero() || end.Before(s.last) {
		s.last = end
		s.conn.SetWriteDeadline(end)
	}
}

func (s *socketOut) abort() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = time.Unix(1, 0)
	s.conn.SetWriteDeadline(s.last)
	if tcp, ok := s.conn.(*net.TCPConn); ok && s.stuck {
		// The client is in the middle of a message that will not be finished, so
		// what the kernel holds is of no use. It would hold it for minutes, for a
		// client that does not read: megabytes that nobody accounts for.
		tcp.SetLinger(0)
	}
	s.conn.Close()
}

// socketUnder returns the connection of type C at or below w, if there is one. It does
// not look below encryption.
func socketUnder[C any](w any) (conn C, ok bool) {
	for {
		if conn, ok = w.(C); ok {
			return conn, true
		}
		wrapper, below := w.(interface{ NetConn() net.Conn })
		if _, encrypted := w.(*tls.Conn); encrypted || !below {
			return conn, false
		}
		w = wrapper.NetConn()
	}
}

// vectored returns the TCP connection below w, if there is one: only that writes
// several buffers in one system call.
func vectored(w io.Writer) io.Writer {
	if conn, ok := socketUnder[*net.TCPConn](w); ok {
		return conn
	}
	return w
}

// cutBuffers splits off the first n bytes, or all if there are fewer. It changes bufs,
// of which the rest is a part: a reply may have thousands of pieces, and copying the
// list for each piece that is sent would cost more than sending it.
func cutBuffers(bufs net.Buffers, n int) (first, rest net.Buffers) {
	for i, buf := range bufs {
		if len(buf) > n {
			first = append(append(make(net.Buffers, 0, i+1), bufs[:i]...), buf[:n])
			bufs[i] = buf[n:]
			return first, bufs[i:]
		}
		if n -= len(buf); n == 0 {
			return bufs[: i+1 : i+1], bufs[i+1:]
		}
	}
	return bufs, nil
}
