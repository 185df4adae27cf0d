// SPDX-License-Identifier: LGPL-3.0-or-later

package attack

import (
	"sync/atomic"
	"time"

	"rpcguard/tests/slowclient/rig"
)

// Large calls in a closed loop: what they cost is taking them apart, since none of them
// has parameters that its method takes.

func init() {
	add(&Case{
		Name: "large-calls", Family: bodies,
		Recipe: "8 connections, each with a call of 2 MiB of numbers, sent again as soon as it is answered",
		Bound:  "each answered or refused, and the polite client's latency",
		Why:    "taking apart what was sent must not take every processor",
		Run: func(r *Run) {
			largeCalls(r, func(i int) (send func([]byte) error, leave func()) {
				c := r.HTTP(r.Attacker(i))
				return func(body []byte) error {
					_, _, err := c.Send(r.Ctx, body)
					return err
				}, c.Close
			})
		},
	}, &Case{
		Name: "ws-large-calls", Family: bodies, Needs: NeedWS,
		Recipe: "8 WebSockets, each with a call of 2 MiB of numbers, sent again as soon as it is answered",
		Bound:  "each answered or refused, and the polite client's latency",
		Why:    "taking apart what was sent must not take every processor",
		Run: func(r *Run) {
			largeCalls(r, func(i int) (send func([]byte) error, leave func()) {
				w := r.WS(r.Attacker(i))
				return func(body []byte) error {
					if err := w.Send(body); err != nil {
						return err
					}
					_, err := w.Next(20 * time.Second)
					return err
				}, w.Abort
			})
		},
	})
}

func largeCalls(r *Run, connect func(i int) (send func([]byte) error, leave func())) {
	numbers := make([]int, mib) // "0," each
	body := rig.Call(1, "eth_getBalance", numbers)
	var answered, failed atomic.Int64
	end := time.Now().Add(r.Seconds(4, 12))
	Parallel(8, func(i int) {
		send, leave := connect(i)
		defer leave()
		for time.Now().Before(end) && r.Ctx.Err() == nil {
			if send(body) != nil {
				failed.Add(1)
				return
			}
			answered.Add(1)
		}
	})
	r.Arrived("calls answered", int(answered.Load()), 8)
	r.Note("answered", float64(answered.Load()), "")
	r.AtMost("unanswered", float64(failed.Load()), 0, "")
}
