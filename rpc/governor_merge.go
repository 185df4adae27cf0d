// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"encoding/json"
	"sync"
)

// readFlights merges identical reads of one client: while one is waiting or on its way,
// others wait for its answer and cost nothing.
//
// It differs from singleflight in whose context counts. A flight is nobody's own: it runs
// until it is answered or until the last of its callers has left, so that one caller's
// deadline does not fail the others, and a flight that nobody wants gives its place in the
// governor's queue back. The class is part of the key, so that a foreground call never
// waits on a background flight. Calls with headers of their own in the context are not
// merged, since the headers may decide the answer.
//
// An answer may be as old as the flight: the state that a caller reads can be older than
// its call by the time that the flight had been under way.
type readFlights struct {
	mu      sync.Mutex
	flights map[string]*readFlight
}

type readFlight struct {
	callers int // guarded by readFlights.mu
	cancel  context.CancelFunc

	done chan struct{} // closed when raw and err are set
	raw  json.RawMessage
	err  error
}

// flightKey identifies what is asked. It is not ok if the arguments cannot be encoded,
// which is for the call itself to report.
func flightKey(class GovernorClass, method string, args []interface{}) (key string, ok bool) {
	params, err := json.Marshal(args)
	if err != nil {
		return "", false
	}
	key = class.String() + " " + method + " " + string(params)
	return key, true
}

// do returns the result of run, called here or for another caller with the same key, and
// whether it was the latter.
func (r *readFlights) do(ctx context.Context, key string, run func(context.Context) (json.RawMessage, error)) (raw json.RawMessage, merged bool, err error) {
	r.mu.Lock()
	f := r.flights[key]
	merged = f != nil
	if !merged {
		flightCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		f = &readFlight{cancel: cancel, done: make(chan struct{})}
		if r.flights == nil {
			r.flights = make(map[string]*readFlight)
		}
		r.flights[key] = f
		go func() {
			defer cancel()
			f.raw, f.err = run(flightCtx)
			r.mu.Lock()
			r.forgetLocked(key, f)
			r.mu.Unlock()
			close(f.done)
		}()
	}
	f.callers++
	r.mu.Unlock()

	select {
	case <-f.done:
		return f.raw, merged, f.err
	case <-ctx.Done():
	}
	r.mu.Lock()
	if f.callers--; f.callers == 0 {
		// Forgotten in the same step: who comes later must not join a flight that
		// is being cancelled.
		r.forgetLocked(key, f)
		f.cancel()
	}
	r.mu.Unlock()
	return nil, merged, ctx.Err()
}

func (r *readFlights) forgetLocked(key string, f *readFlight) {
	if r.flights[key] == f {
		delete(r.flights, key)
	}
}
