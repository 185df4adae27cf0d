// SPDX-License-Identifier: LGPL-3.0-or-later

package attack

import (
	"strings"
	"sync/atomic"
	"time"

	"rpcguard/tests/slowclient/rig"
)

const filters = "filters"

func init() {
	add(&Case{
		Name: "filter-flood", Number: 14, Family: filters, Quick: true, Needs: NeedChain, Flow: true,
		Recipe: "5 POSTs of 1000 eth_newPendingTransactionFilter(true), never polled; large transactions",
		Bound:  "at most 256 installed for one client, -32005 beyond; memory grows by at most 256 MiB",
		Why:    "5 requests must not leave 10000 goroutines and a growing queue behind each",
		Run: func(r *Run) {
			before := r.Node.Goroutines()
			installed := installFilters(r, 0, 5, 1000)
			r.Arrived("batches answered", 5, 5)
			r.AtMost("installed", float64(installed), 256, "")
			if before >= 0 {
				r.AtMost("goroutines more", float64(r.Node.Goroutines()-before), 2000, "")
			}
			f := r.LargeFlow()
			r.For(r.Seconds(3, 15))
			r.Flowed(f)
			r.MemoryAtMost(256 * mib)
		},
	}, &Case{
		Name: "filter-overflow", Number: 14, Family: filters, Needs: NeedChain | NeedGuard, Flow: true,
		Recipe: "a filter for full pending transactions, never polled; 20 MB of them",
		Bound:  "it is uninstalled: its next poll says filter not found",
		Why:    "a filter that nobody polls must not keep everything for five minutes",
		Run: func(r *Run) {
			c := r.HTTP(r.Attacker(0))
			reply, err := c.Call(r.Ctx, "eth_newPendingTransactionFilter", true)
			r.Must(err, "filter")
			r.Check(reply.Err == nil, "filter: %v", reply.Err)
			f := r.LargeFlow()
			rig.Until(r.Ctx, 40*time.Second, func() bool { return f.Sent.Load() > 100 })
			r.Flowed(f)
			poll, err := c.Call(r.Ctx, "eth_getFilterChanges", reply.Text())
			r.Must(err, "poll")
			r.Check(poll.Err != nil && strings.Contains(poll.Err.Message, "filter not found"), "its poll is answered %.100s %v", poll.Result, poll.Err)
		},
	}, &Case{
		Name: "filters-lock-out", Number: 49, Family: filters, Needs: NeedChain,
		Recipe: "16 clients hold 256 filters each; then others ask for one",
		Bound:  "others get theirs",
		Why:    "a limit on filters must not become the cheaper way to lock everybody out",
		Run: func(r *Run) {
			held := 0
			for i := range 16 {
				held += installFilters(r, i, 1, 256)
			}
			r.Arrived("filters held", held, 16*256*9/10)
			var t Tally
			for i := range 10 {
				t.Add(outcome(r.HTTP(r.Attacker(100+i)).Send(r.Ctx, rig.Call(1, "eth_newBlockFilter"))))
			}
			r.Exactly("others' filters", t.Get("served"), 10)
		},
	}, &Case{
		Name: "filters-healthy", Family: filters, Needs: NeedChain,
		Recipe: "100 clients each install a log filter and poll it every second",
		Bound:  "none is refused or lost",
		Why:    "limits on filters must not hurt those that poll",
		Run: func(r *Run) {
			var lost atomic.Int64
			Parallel(r.Scale(30, 100), func(i int) {
				c := r.HTTP(r.Attacker(i))
				reply, err := c.Call(r.Ctx, "eth_newFilter", map[string]any{"address": r.Setup.Logger})
				if err != nil || reply.Err != nil {
					lost.Add(1)
					return
				}
				for range r.Scale(3, 10) {
					r.For(time.Second)
					poll, err := c.Call(r.Ctx, "eth_getFilterChanges", reply.Text())
					if err != nil || poll.Err != nil {
						lost.Add(1)
						return
					}
				}
			})
			r.Arrived("clients", 1, 1) // each had its answers, or is counted as lost
			r.Exactly("lost", int(lost.Load()), 0)
		},
	})
}

// installFilters posts batches of new filters from the i-th attacker and counts
// those that were installed. A refusal must be -32005.
func installFilters(r *Run, i, batches, each int) (installed int) {
	c := r.HTTP(r.Attacker(i))
	for range batches {
		var batch [][]byte
		for k := range each {
			batch = append(batch, rig.Call(k, "eth_newPendingTransactionFilter", true))
		}
		_, rs, err := c.SendBatch(r.Ctx, rig.Batch(batch...))
		r.Must(err, "installing filters")
		for _, reply := range rs {
			if reply.Err == nil {
				installed++
			} else if reply.Code() != codeLimit {
				r.Break("a filter is refused with %v", reply.Err)
				return installed
			}
		}
	}
	return installed
}
