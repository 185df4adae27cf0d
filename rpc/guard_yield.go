// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import "sync/atomic"

const (
	// yieldHeader is how long the header of an HTTP/1 request is before its reader lets
	// others run: in bytes, twice what browsers and proxies send.
	yieldHeader = 8 << 10

	// yieldRead is how many bytes of one read make the reader let others run.
	yieldRead = 16 << 10
)

// readPace says when the reader of a connection lets others run before it goes on.
//
// Go runs what is ready first come first served, for up to 10 ms each, and a call is ready
// several times before it is answered. A reader that always finds more to read costs
// everybody as much as it may run: 2000 connections whose 64 KiB headers have come read
// them in 16 reads each, one after the other, 0.6 s in which a polite call moves up once.
// One that lets others run goes to the end of the queue of all processors, which Go looks
// at less often than at the queue of those who have just become ready: so who sends little
// passes by.
//
// It does not wait for anything: no connection can keep another one from being read, and
// what nobody else wants to run for costs 0.2 us a read. It bounds neither bytes nor
// connections. A connection that sends little at a time is never asked to yield, however
// often it does.
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

// yields reports whether the reader of n bytes lets others run. lines tells whether
// request headers are lines, as in HTTP/1.
func (p *readPace) yields(n int, lines bool) bool {
	if n >= yieldRead {
		return true
	}
	h := p.head.Load()
	return h >= 0 && lines && p.head.CompareAndSwap(h, h+int64(n)) && h+int64(n) > yieldHeader
}
