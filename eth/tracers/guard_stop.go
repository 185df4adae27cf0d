// SPDX-License-Identifier: LGPL-3.0-or-later

package tracers

import (
	"encoding/json"
	"sync/atomic"
)

// A trace that takes too long, or whose client has left, is ended through its tracer's
// Stop, by a goroutine in which nothing recovers: a tracer without one takes the whole
// node down. Upstream's keccak256PreimageTracer has none, alone or inside a muxTracer;
// on stock one request with a time-out is enough, and here, where a client that leaves
// ends its trace, leaving would be.

// CompleteStops gives the tracers registered so far a Stop where they have none. It is
// for init functions: registering is not for several goroutines.
func CompleteStops() {
	for name, e := range DefaultDirectory.elems {
		e.ctor = afterwards(e.ctor, func(t *Tracer) {
			if t.Stop == nil {
				endStopped(t)
			}
		})
		DefaultDirectory.elems[name] = e
	}
}

// endStopped makes a tracer that was stopped return why, at once. Upstream's tracers
// make their result and return the reason beside it, so that the result is thrown away;
// making it takes a while and several times its size.
func endStopped(t *Tracer) {
	var (
		stop, get = t.Stop, t.GetResult
		reason    atomic.Pointer[error]
	)
	t.Stop = func(err error) {
		reason.CompareAndSwap(nil, &err)
		if stop != nil {
			stop(err)
		}
	}
	t.GetResult = func() (json.RawMessage, error) {
		if err := reason.Load(); err != nil {
			return nil, *err
		}
		return get()
	}
}
