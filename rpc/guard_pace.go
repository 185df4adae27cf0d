// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
)

// slowWindow is how far back a pace is measured, at least. A steady reader of
// 50 KB/s with a receive buffer of 4 KiB, whose completed writes are up to 28 s
// apart, has at least 47 KB/s acknowledged in every 3 s.
const slowWindow = 10 * time.Second

// clientPace is how fast a client takes what waits for it, as far as that is known:
// it is measured by one goroutine and asked for by others, which may hold any lock. It
// belongs to one wait, and means nothing once that is over.
type clientPace struct{ packed atomic.Uint64 }

// set notes the pace of the given wait, in bytes a second. Waits count from 1, so what
// was never set belongs to none.
func (p *clientPace) set(wait uint32, rate int64) {
	p.packed.Store(uint64(wait)<<32 | uint64(min(rate, math.MaxUint32)))
}

// of returns the pace of the given wait.
func (p *clientPace) of(wait uint32) (rate int64, known bool) {
	v := p.packed.Load()
	return int64(uint32(v)), uint32(v>>32) == wait && wait != 0
}

// pace returns how many bytes a second the connection's client takes of what waits for
// it, and whether that is known: it waits, and has for slowWindow. It takes no lock.
func (c *stallConn) pace() (rate int64, known bool) {
	if c == nil || c.waiters.Load() == 0 {
		return 0, false
	}
	return c.rate.of(c.waits.Load())
}

// anyPace reports whether any connection's pace is known. It takes no lock.
func (w *stallWatch) anyPace() bool { return w.paces.Load() > 0 }

// pace returns how many bytes a second have left, measured from the youngest mark that
// is at least slowWindow old.
func (s *stallState) pace(now mclock.AbsTime) (rate int64, known bool) {
	mark, ok := s.since(now, slowWindow)
	if !ok {
		return 0, false
	}
	return int64(float64(s.count-mark.left) / now.Sub(mark.at).Seconds()), true
}
