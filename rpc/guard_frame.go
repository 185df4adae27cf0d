// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"encoding/binary"
	"math"
)

// frameFollower reads along in the bytes that a WebSocket client sends and keeps
// track of where in which message they are. It exists because the library that
// parses them offers no place to ask for memory before a message is read.
//
// It follows RFC 6455 section 5.2 as far as lengths go: the first two bytes, an
// extended length of 2 or 8 bytes, the 4 bytes of a mask, the payload. A message
// is a chain of data frames up to one with FIN; control frames (opcodes from 8
// on) come in between and belong to none. It checks nothing: frames that are
// wrong make the library end the connection, and whatever the follower believes
// after that is never used. It never fails and never blocks, whatever the bytes.
//
// A message of 100 KiB in two frames of 50 KiB with a ping of 5 bytes between them
// is told as: payload known to reach 50 KiB, then bytes, nothing for the ping,
// payload known to reach 100 KiB, bytes, end.
type frameFollower struct {
	head    [14]byte // of the frame being read
	have    int      // bytes of head read
	left    int64    // payload bytes of the frame still to come
	payload bool     // head is complete
	open    bool     // a message has begun and not ended

	declared int64 // payload bytes of the message by the headers so far
	received int64 // payload bytes of the message that were read
}

// frameEvent is what next saw last.
type frameEvent uint8

const (
	frameMore    frameEvent = iota // nothing to note
	frameHeader                    // a data frame's header: declared has grown
	framePayload                   // payload of a data frame: received has grown
	frameEnd                       // the message ended; the counts are its own until the next one begins
)

// next takes bytes off the front of p up to the next thing to note, at least one
// if there are any, and returns how many.
func (f *frameFollower) next(p []byte) (n int, ev frameEvent) {
	if f.payload {
		n = int(min(int64(len(p)), f.left))
		f.left -= int64(n)
		if f.left > 0 {
			if f.isControl() {
				return n, frameMore
			}
			f.received += int64(n)
			return n, framePayload
		}
		if !f.isControl() {
			f.received += int64(n)
		}
		return n, f.frameDone()
	}
	for n < len(p) {
		f.head[f.have] = p[n]
		f.have, n = f.have+1, n+1
		if f.have < 2 || f.have < f.headLen() {
			continue
		}
		f.payload, f.left = true, f.payloadLen()
		if f.isControl() {
			if f.left == 0 {
				return n, f.frameDone()
			}
			return n, frameMore
		}
		if !f.open {
			f.open, f.declared, f.received = true, 0, 0
		}
		f.declared += min(f.left, math.MaxInt64-f.declared)
		if f.left == 0 {
			return n, f.frameDone()
		}
		return n, frameHeader
	}
	return n, frameMore
}

// frameDone ends the current frame.
func (f *frameFollower) frameDone() frameEvent {
	f.payload, f.have = false, 0
	if f.isControl() {
		return frameMore
	}
	if final := f.head[0]&0x80 != 0; final {
		f.open = false
		return frameEnd
	}
	return framePayload
}

func (f *frameFollower) isControl() bool { return f.head[0]&0x8 != 0 }

// headLen returns the length of the header by its first two bytes.
func (f *frameFollower) headLen() int {
	n := 2
	switch f.head[1] & 0x7f {
	case 126:
		n += 2
	case 127:
		n += 8
	}
	if f.head[1]&0x80 != 0 {
		n += 4
	}
	return n
}

func (f *frameFollower) payloadLen() int64 {
	switch n := f.head[1] & 0x7f; n {
	case 126:
		return int64(binary.BigEndian.Uint16(f.head[2:]))
	case 127:
		return int64(min(binary.BigEndian.Uint64(f.head[2:]), math.MaxInt64))
	default:
		return int64(n)
	}
}
