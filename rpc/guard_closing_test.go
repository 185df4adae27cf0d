// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
)

// Ten thousand clients that do not read do not keep a server that stops for longer than
// a second, and clients that do read take nothing of it.
func TestClosePace(t *testing.T) {
	clock := new(mclock.Simulated)
	p := &closePace{clock: clock}
	closeAll := func(n int, takes func(grace time.Duration) time.Duration) (total time.Duration) {
		for range n {
			grace, end := p.begin()
			d := takes(grace)
			clock.Run(d)
			end()
			total += d
		}
		return total
	}
	stalled := func(grace time.Duration) time.Duration { return grace }
	clock.Run(time.Hour)
	if took := closeAll(10000, stalled); took != closeTotal {
		t.Errorf("10000 stalled connections took %v", took)
	}
	clock.Run(2 * time.Second)
	if took := closeAll(1, stalled); took != closeGrace {
		t.Errorf("one that is closed later gets %v", took)
	}
	clock.Run(2 * time.Second)
	healthy := 0
	closeAll(500, func(grace time.Duration) time.Duration {
		if grace == closeGrace {
			healthy++
		}
		return 100 * time.Microsecond
	})
	if healthy != 500 {
		t.Errorf("%d of 500 clients that read had the time to", healthy)
	}
}
