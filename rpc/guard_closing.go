// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
)

// closeTotal is how long a server that stops waits for its clients to take the end of
// what they are sent, all of them together.
const closeTotal = time.Second

// serverStreams are the streams of each server, so that one which stops can end all of
// them at once. Upstream closes one after another, and until its turn comes each goes on
// with what its client has asked for: with 200 clients that had asked for more than they
// read, the calls of those not closed yet left so little of the processors for the next
// to be closed that stopping took half a minute.
type serverStreams struct {
	mu sync.Mutex
	of map[*Server]map[*guardCodec]struct{}
}

func (x *serverStreams) add(s *Server, c *guardCodec) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.of == nil {
		x.of = make(map[*Server]map[*guardCodec]struct{})
	}
	if x.of[s] == nil {
		x.of[s] = make(map[*guardCodec]struct{})
	}
	x.of[s][c] = struct{}{}
}

// remove forgets a stream that ends. It returns all others of its server if that one
// stops, to the first that asks.
func (x *serverStreams) remove(s *Server, c *guardCodec) (others []*guardCodec) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.of[s], c)
	if !s.run.Load() {
		for other := range x.of[s] {
			others = append(others, other)
		}
		delete(x.of, s)
	} else if len(x.of[s]) == 0 {
		delete(x.of, s)
	}
	return others
}

// closePace bounds what closing connections in good order takes altogether. A server
// that stops closes them one after another, and each whose client does not read takes
// closeGrace: 200 of those would keep the node 10 s, 10000 more than 8 minutes. So the
// first 20 get that much, and the rest are closed with what is on its way cut off.
//
// Closings that are a second apart do not belong together. The zero value with a clock
// is ready for use.
type closePace struct {
	clock mclock.Clock

	mu    sync.Mutex
	spent time.Duration
	last  mclock.AbsTime // when a closing ended
}

// begin returns how long the next closing may take. Its end must be told by calling the
// function returned.
func (p *closePace) begin() (grace time.Duration, end func()) {
	begun := p.clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if begun.Sub(p.last) > closeTotal {
		p.spent = 0
	}
	return min(closeGrace, max(0, closeTotal-p.spent)), func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.last = p.clock.Now()
		p.spent += p.last.Sub(begun)
	}
}
