// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
)

const (
	// longHeader is how long the header of an HTTP/1 request is before its reader makes
	// room for others: in bytes, twice what browsers and proxies send.
	longHeader = 8 << 10

	// yieldRead is how many bytes of one read make the reader let others run.
	yieldRead = 16 << 10

	// headerPause is what each reader of a long header adds to a pause, and
	// maxHeaderPause the longest one. Together the readers of long headers go on 5000
	// times a second; 64 KiB, beyond which nothing is read, take one of them 7 s at most,
	// of the 30 s that a request may take to arrive.
	headerPause    = 200 * time.Microsecond
	maxHeaderPause = 500 * time.Millisecond
)

// readPace says when the reader of a connection makes room for others before it goes on.
//
// Go runs what is ready first come first served, for up to 10 ms each, and a call is ready
// several times before it is answered. A reader that always finds more to read costs
// everybody as much as it may run. After a read of 16 KiB it lets others run: it goes to
// the end of the queue of all processors.
//
// For long headers that is not enough. 2000 connections whose 64 KiB have come have 16
// reads each to make, and 2000 readers that let each other run are all in that queue all
// the time: whatever the network brings meanwhile, a polite call above all, comes in at its
// end and is 80 to 180 ms late. So their readers pause (see headerPauses), and while they
// do they are in no queue.
//
// Neither waits for anything that another connection does: none can keep one from being
// read. They bound neither bytes nor connections. A connection that sends little at a time
// is never asked to, however often it does.
//
// The zero value expects a header.
type readPace struct {
	head atomic.Int64 // bytes of the request header that were read; negative: none is expected
}

// header notes that a request header is expected next, or that none is.
func (p *readPace) header(expected bool) {
	if expected {
		p.head.Store(0)
	} else {
		p.head.Store(-1)
	}
}

// long reports whether n bytes more make the header of a request a long one. lines tells
// whether request headers are lines, as in HTTP/1.
func (p *readPace) long(n int, lines bool) bool {
	h := p.head.Load()
	return h >= 0 && lines && p.head.CompareAndSwap(h, h+int64(n)) && h+int64(n) > longHeader
}

// headerPauses spreads the reads of a server's long headers.
//
// A pause grows with the number of those who pause as well: that is a rate for all of them
// together, without a queue. Who leaves holds up nobody for longer than the pause he was
// in, and the longest pause is 0.5 s. One header of 16 KiB alone is delayed by 0.4 ms.
type headerPauses struct {
	clock   mclock.Clock
	pausing atomic.Int64
}

// pause returns when the reader of a long header may go on.
func (p *headerPauses) pause() {
	n := p.pausing.Add(1)
	defer p.pausing.Add(-1)
	p.clock.Sleep(min(time.Duration(n)*headerPause, maxHeaderPause))
}
