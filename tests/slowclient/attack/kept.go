// SPDX-License-Identifier: LGPL-3.0-or-later

package attack

import (
	"encoding/json"
	"fmt"
	"time"

	"rpcguard/tests/slowclient/rig"
)

// What a call leaves behind: its own bytes are free when it returns, those of the
// criteria it installed are not.

func init() {
	add(&Case{
		Name: "criteria-pile-up", Family: subscribers, Quick: true, Needs: NeedChain | NeedWS,
		Recipe: "1000 log subscriptions and filters with 1000 addresses each, from 4 clients; then blocks with 2000 logs",
		Bound:  "what is kept is bounded, and -32005 beyond; heads of others on time",
		Why:    "a subscription must not leave megabytes behind, nor slow down the matching of everybody's logs",
		Run: func(r *Run) {
			acct := r.Account()
			logger, err := acct.Logger(r.Ctx)
			r.Must(err, "logger")
			list := make([]string, 1000)
			for i := range list {
				list[i] = fmt.Sprintf("0x%040x", i+1<<20)
			}
			encoded, err := json.Marshal(map[string]any{"address": list})
			r.Must(err, "criteria")
			criteria := rig.Raw(encoded)

			var tally Tally
			n := r.Scale(1000, 4000)
			Parallel(4, func(i int) {
				ws := r.WS(r.Attacker(i))
				c := r.HTTP(r.Attacker(i))
				for k := range n / 4 {
					var (
						reply *rig.Reply
						err   error
					)
					if k%4 > 0 {
						reply, err = ws.Call(time.Minute, "eth_subscribe", "logs", criteria)
					} else {
						reply, err = c.Call(r.Ctx, "eth_newFilter", criteria)
					}
					switch {
					case err != nil:
						tally.Add("failed")
						return // its connection is gone: it had most
					case reply.Err != nil:
						tally.Add("refused")
						r.Check(reply.Code() == -32005, "refused with %v", reply.Err)
					default:
						tally.Add("installed")
					}
				}
			})
			r.Arrived("installed", tally.Get("installed"), 100)
			r.MemoryAtMost(512 * mib)
			for range r.Scale(2, 4) {
				r.Must(acct.Send(r.Ctx, acct.LogTx(logger, 2000)), "the transaction with logs")
				r.For(3 * time.Second)
			}
		},
	})
}
