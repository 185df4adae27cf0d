// SPDX-License-Identifier: LGPL-3.0-or-later

package attack

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"rpcguard/tests/slowclient/rig"
)

// Crowd is a number of clients that ask for little and wait for the answer, each from
// an address of its own.
type Crowd struct {
	cancel        context.CancelFunc
	wg            sync.WaitGroup
	asked, served atomic.Int64
}

// Crowd starts n of them. Each asks for a balance five times a second.
func (r *Run) Crowd(n int) *Crowd {
	ctx, cancel := context.WithCancel(r.Ctx)
	c := &Crowd{cancel: cancel}
	r.OnClose(func() { c.Stop() })
	call := rig.Call(1, "eth_getBalance", "0x00000000000000000000000000000000000000cc", "latest")
	for i := range n {
		client := r.HTTP(r.Attacker(300 + i))
		c.wg.Go(func() {
			// Not all at once.
			rig.Sleep(ctx, time.Duration(i)*200*time.Millisecond/time.Duration(n))
			for ctx.Err() == nil {
				// A call that has begun is waited for although the crowd is to stop.
				one, done := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
				c.asked.Add(1)
				if outcome(client.Send(one, call)) == "served" {
					c.served.Add(1)
				}
				done()
				rig.Sleep(ctx, 200*time.Millisecond)
			}
		})
	}
	return c
}

// Stop ends the crowd and tells how many calls it made and how many were served.
func (c *Crowd) Stop() (asked, served int64) {
	c.cancel()
	c.wg.Wait()
	return c.asked.Load(), c.served.Load()
}
