// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/ethereum/go-ethereum/common/mclock"
)

const (
	h2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	h2Streams = 100 // streams a connection may have open

	h2FrameHeaders = 1
	h2FrameReset   = 3

	// resetBurst is how many streams a client may reset beyond those it let
	// finish: twice all it may have open, as a page does that is closed and
	// opened again. resetRate a second are forgiven.
	resetBurst = 2 * h2Streams
	resetRate  = 20
)

// resetFollower reads along in what a client sends on a connection and notices an
// HTTP/2 client that opens and resets streams faster than it lets any finish. Each
// such pair costs the client 50 bytes and the server a request, and never counts
// against the number of open streams.
//
// A client may as well have the server do it (CVE-2025-8671): a frame that breaks the
// rules of its stream, such as a window update by 0 behind the HEADERS, makes the server
// reset the stream that it has begun to serve. What the server resets for such a reason,
// as sentResets saw it, counts like the client's own.
//
// It knows frame headers only. Streams that finished are those opened, less those
// reset, less at most h2Streams that are still open. A client that resets one in
// three, or all it has once in a while, is never ended; one that sends nothing but
// pairs is after 201.
//
// The zero value is ready, and passes HTTP/1 by.
type resetFollower struct {
	sent     sentResets
	state    resetState
	head     [9]byte
	have     int   // bytes of the preface or of head that were seen
	skip     int64 // payload bytes to come
	opened   int64
	resets   int64
	finished int64 // known to have finished, at most
	last     uint32
	level    float64
	at       mclock.AbsTime // when level was right
}

type resetState uint8

const (
	resetPreface resetState = iota
	resetFrames
	resetOff // not HTTP/2
)

// feed reads along in p and reports whether the connection must end.
func (f *resetFollower) feed(p []byte, now mclock.AbsTime) bool {
	for len(p) > 0 {
		switch f.state {
		case resetOff:
			return false
		case resetPreface:
			if p[0] != h2Preface[f.have] {
				f.state = resetOff
				return false
			}
			p = p[1:]
			if f.have++; f.have == len(h2Preface) {
				f.state, f.have = resetFrames, 0
				f.sent.on.Store(true)
			}
		case resetFrames:
			if f.skip > 0 {
				n := min(f.skip, int64(len(p)))
				f.skip -= n
				p = p[n:]
				continue
			}
			n := copy(f.head[f.have:], p)
			f.have += n
			p = p[n:]
			if f.have < len(f.head) {
				return false
			}
			f.have = 0
			f.skip = int64(f.head[0])<<16 | int64(f.head[1])<<8 | int64(f.head[2])
			if f.frame(now) {
				return true
			}
		}
	}
	return false
}

// frame accounts for one frame header.
func (f *resetFollower) frame(now mclock.AbsTime) bool {
	id := binary.BigEndian.Uint32(f.head[5:]) & 0x7fffffff
	switch f.head[3] {
	case h2FrameHeaders:
		if n := f.sent.faults.Swap(0); n > 0 && f.reset(n, now) {
			return true
		}
		if id > f.last { // the same stream again: trailers
			f.last = id
			f.opened++
		}
		if done := f.opened - f.resets - h2Streams; done > f.finished {
			f.level = max(0, f.level-float64(done-f.finished))
			f.finished = done
		}
	case h2FrameReset:
		return f.reset(1, now)
	}
	return false
}

// reset accounts for n streams that were reset, and reports whether those are too many.
func (f *resetFollower) reset(n int64, now mclock.AbsTime) bool {
	f.resets += n
	if f.level > 0 {
		f.level = max(0, f.level-resetRate*now.Sub(f.at).Seconds())
	}
	f.at = now
	f.level += float64(n)
	return f.level > resetBurst
}

// sentResets reads along in what the server sends on an HTTP/2 connection and counts the
// streams that it resets since the client broke a rule. It is fed by one goroutine at a
// time, as the server writes; others may look at its atomic fields.
type sentResets struct {
	on     atomic.Bool  // the connection speaks HTTP/2
	faults atomic.Int64 // not accounted for yet

	head [13]byte // of a frame, and the code if it is a reset
	have int
	skip int64 // payload bytes to come
}

// feed reads along in p.
func (s *sentResets) feed(p []byte) {
	for len(p) > 0 {
		if s.skip > 0 {
			n := min(s.skip, int64(len(p)))
			s.skip -= n
			p = p[n:]
			continue
		}
		want := 9
		if s.have >= 9 {
			want = len(s.head)
		}
		n := copy(s.head[s.have:want], p)
		s.have += n
		p = p[n:]
		if s.have < want {
			return
		}
		if want == 9 {
			s.skip = int64(s.head[0])<<16 | int64(s.head[1])<<8 | int64(s.head[2])
			if s.head[3] == h2FrameReset && s.skip == 4 {
				s.skip = 0 // its code is looked at
				continue
			}
		} else if faulty(binary.BigEndian.Uint32(s.head[9:])) {
			s.faults.Add(1)
		}
		s.have = 0
	}
}

// faulty reports whether a stream is reset with this code for the client's fault. A
// stream that is refused, cancelled or answered early is not, nor is one whose client
// sends on for a moment after that (STREAM_CLOSED).
func faulty(code uint32) bool {
	const protocolError, flowControlError, frameSizeError = 1, 3, 6
	return code == protocolError || code == flowControlError || code == frameSizeError
}
