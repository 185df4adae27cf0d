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
