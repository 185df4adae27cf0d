// SPDX-License-Identifier: LGPL-3.0-or-later

package attack

import (
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"rpcguard/tests/slowclient/rig"
)

const subscribers = "subscribers"

func init() {
	add(&Case{
		Name: "subscriber-stops", Number: 1, Family: subscribers, Quick: true, Needs: NeedChain | NeedWS, Flow: true,
		Recipe: "WebSocket with a 4 KiB receive buffer subscribes to full pending transactions and stops reading; 16 transactions of 100 KB a second",
		Bound:  "newHeads of others never silent for over 2 block times, calls as fast as with the same transactions and no such subscriber (three times, or 25 ms more); its socket is ended",
		Why:    "one subscriber that stops reading must not delay everybody's new heads",
		Run: func(r *Run) {
			ws := subscribe(r, r.narrow(0), "newPendingTransactions", true)
			r.overruns(ws)
		},
	}, &Case{
		Name: "subscriber-crawls", Number: 2, Family: subscribers, Quick: true, Needs: NeedChain | NeedWS, Flow: true,
		Recipe: "the same subscriber reads on, 200 KB a second",
		Bound:  "newHeads of others never silent for over 2 block times; the subscriber's socket is ended",
		Why:    "a subscriber that reads too slowly must not hold up everybody else, for as long as it likes",
		Run: func(r *Run) {
			ws := subscribe(r, r.narrow(0), "newPendingTransactions", true)
			go rig.Trickle(r.Ctx, ws.Net, 200_000)
			r.overruns(ws)
		},
	}, &Case{
		Name: "many-subscriptions", Number: 15, Family: subscribers, Quick: true, Needs: NeedWS,
		Recipe: "20000 newHeads subscriptions on one connection",
		Bound:  "refused with -32005 past a limit; heads of others on time",
		Why:    "one connection must not be able to pile up subscriptions without end",
		Run: func(r *Run) {
			ws := r.WS(r.Attacker(0))
			accepted, refused := subscribeMany(r, ws, r.Scale(3000, 20000))
			r.Arrived("subscriptions answered", accepted+refused, 1000)
			r.AtMost("accepted", float64(accepted), 1024, "")
			r.Note("refused", float64(refused), "")
			r.For(r.Seconds(2, 5))
		},
	}, &Case{
		Name: "batch-buffers-events", Number: 17, Family: subscribers, Needs: NeedChain | NeedWS, Flow: true,
		Recipe: "WebSocket batch of eth_subscribe(newPendingTransactions, true) and a slow call: notifications wait for the batch's end; 16 of 200 KB a second",
		Bound:  "what is still allocated grows by at most 96 MiB; the subscriptions are dropped",
		Why:    "notifications buffered behind a slow batch must be bounded",
		Run:    bufferedEvents,
	}, &Case{
		Name: "subscribe-and-vanish", Number: 23, Family: subscribers, Quick: true, Needs: NeedWS | NeedMetrics,
		Recipe: "300 times: connect, subscribe to every kind, leave by a reset",
		Bound:  "goroutines and subscriptions back to where they were",
		Why:    "clients that vanish must leave nothing behind",
		Run: func(r *Run) {
			before := r.Node.Goroutines()
			kinds := [][]any{{"newHeads"}, {"logs", map[string]any{}}, {"newPendingTransactions"}, {"newPendingTransactions", true}, {"transactionReceipts"}, {"syncing"}}
			accepted := 0
			for i := range 300 {
				ws, err := rig.DialWS(r.Ctx, r.Node.WS, r.Attacker(i%10))
				r.Must(err, "connecting")
				for k, args := range kinds {
					ws.Send(rig.Call(k, "eth_subscribe", args...))
				}
				// At least one is there before it leaves. The first answer may be of a kind
				// that an older release does not have: calls run side by side.
				for range kinds {
					rs, err := ws.Next(5 * time.Second)
					if err != nil {
						break
					}
					if len(rs) > 0 && rs[0].Err == nil {
						accepted++
						break
					}
				}
				ws.Abort()
			}
			r.Arrived("clients with a subscription", accepted, 300)
			after := 0
			rig.Until(r.Ctx, 5*time.Second, func() bool { after = r.Node.Goroutines(); return after <= before+20 })
			r.AtMost("goroutines more", float64(after-before), 20, "")
			r.MetricBecomes("rpc_subscription_active", 5*time.Second, "3 (the polite client's)", func(v float64) bool { return v == 3 })
			r.GaugesZero(5 * time.Second)
		},
	}, &Case{
		Name: "healthy-crowd", Number: 26, Family: subscribers, Needs: NeedChain | NeedWS,
		Recipe: "200 healthy subscribers; one block with 5000 logs, one announcement of 5000 transactions",
		Bound:  "everything delivered to everybody, nobody dropped",
		Why:    "limits against slow subscribers must not hurt healthy ones in a busy minute",
		Run:    func(r *Run) { healthyCrowd(r, r.Scale(50, 200), r.Scale(1000, 5000)) },
	}, &Case{
		Name: "stalled-parade", Number: 38, Family: subscribers, Needs: NeedChain | NeedWS, Flow: true,
		Recipe: "a new subscriber that never reads every 3 s for a minute, large notifications",
		Bound:  "newHeads of others never silent for over 2 block times",
		Why:    "a trickle of dead subscribers must not halve block production",
		Run: func(r *Run) {
			f := r.LargeFlow()
			for i := range r.Scale(4, 20) {
				subscribe(r, r.narrow(i), "newPendingTransactions", true)
				r.For(3 * time.Second)
			}
			r.Flowed(f)
		},
	}, &Case{
		Name: "subscription-flood", Number: 42, Family: subscribers, Needs: NeedWS,
		Recipe: "20000 newHeads subscriptions on one connection that reads everything",
		Bound:  "refused past a limit; less than half a processor; polite latency",
		Why:    "a thousand copies of the same event must not cost a thousand encodings and writes",
		Run: func(r *Run) {
			ws := r.WS(r.Attacker(0))
			accepted, _ := subscribeMany(r, ws, r.Scale(3000, 20000))
			r.AtMost("accepted", float64(accepted), 1024, "")
			var events atomic.Int64
			go func() {
				for {
					if _, err := ws.Next(time.Minute); err != nil {
						return
					}
					events.Add(1)
				}
			}()
			used := r.Node.Load(r.Ctx, r.Seconds(5, 15))
			if r.Node.Pid == 0 {
				r.notSeen("processors")
			} else {
				r.AtMost("processors", used, idleCPU, "")
			}
			r.Arrived("events", int(events.Load()), accepted)
			r.Note("events", float64(events.Load()), "")
		},
	}, &Case{
		Name: "subscriber-stops-many", Family: subscribers, Needs: NeedChain | NeedWS, Flow: true,
		Recipe: "20 such subscribers at once, from 20 addresses",
		Bound:  "newHeads of others never silent for over 2 block times; memory grows by at most 400 MiB",
		Why:    "many dead subscribers at once are no worse than one",
		Run: func(r *Run) {
			for i := range 20 {
				subscribe(r, r.narrow(i), "newPendingTransactions", true)
			}
			f := r.LargeFlow()
			r.For(r.Seconds(12, 18))
			r.Flowed(f)
			r.MemoryAtMost(400 * mib)
		},
	}, &Case{
		Name: "subscriber-stops-ipc", Family: subscribers, Needs: NeedChain | NeedWS | NeedIPC, Flow: true,
		Recipe: "the subscriber that stops reading, over IPC",
		Bound:  "newHeads of others never silent for over 2 block times",
		Why:    "a hung local tool must not delay everybody's new heads either",
		Run: func(r *Run) {
			c := r.IPC()
			reply, err := c.Call(5*time.Second, "eth_subscribe", "newPendingTransactions", true)
			r.Must(err, "subscribing")
			r.Check(reply.Err == nil, "subscribing: %v", reply.Err)
			f := r.LargeFlow()
			r.For(r.Seconds(12, 18))
			r.Flowed(f)
		},
	}, &Case{
		Name: "subscriber-pings", Family: subscribers, Needs: NeedChain | NeedWS, Flow: true,
		Recipe: "the subscriber that stops reading goes on sending pings",
		Bound:  "newHeads of others never silent for over 2 block times",
		Why:    "looking alive must not buy a dead subscriber time",
		Run: func(r *Run) {
			ws := subscribe(r, r.narrow(0), "newPendingTransactions", true)
			f := r.LargeFlow()
			ping := rig.Frame(true, 9, []byte("x"))
			for end := time.Now().Add(r.Seconds(9, 15)); time.Now().Before(end) && r.Ctx.Err() == nil; {
				ws.Net.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
				ws.Net.Write(ping)
				r.For(100 * time.Millisecond)
			}
			r.Flowed(f)
		},
	})
}

// subscribe opens a connection with one subscription and reads only its reply.
func subscribe(r *Run, d rig.Dialer, args ...any) *rig.WS {
	ws := r.WS(d)
	reply, err := ws.Call(20*time.Second, "eth_subscribe", args...)
	r.Must(err, "subscribing")
	if reply.Err != nil {
		r.Must(reply.Err, "subscribing")
	}
	return ws
}

// overruns lets large notifications flow until the subscriber's connection is ended,
// and a moment longer; where nobody ends it, for as long as it takes to see whom it
// holds up.
func (r *Run) overruns(ws *rig.WS) {
	f := r.LargeFlow()
	most := r.Seconds(8, 18)
	if r.Guarded() {
		most += 10 * time.Second
	}
	if r.ended(ws, most) {
		r.For(2 * time.Second)
	} else if r.Guarded() {
		r.Break("its connection was not ended")
	}
	r.Flowed(f)
}

// ended reports whether the server has ended the connection within limit. What the
// kernels still hold for a client that does not read could take minutes to read away;
// writing to a socket that nobody has any more fails at once.
func (r *Run) ended(ws *rig.WS, limit time.Duration) bool {
	ping := rig.Frame(true, 9, nil)
	return rig.Until(r.Ctx, limit, func() bool {
		rig.Sleep(r.Ctx, 80*time.Millisecond) // no flood of pings
		ws.Net.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		_, err := ws.Net.Write(ping)
		ne, timeout := err.(interface{ Timeout() bool })
		return err != nil && (!timeout || !ne.Timeout())
	})
}

// bufferedEvents holds notifications back behind a slow call of the same batch.
func bufferedEvents(r *Run) {
	const n = 8
	f := r.LargeFlow()
	r.For(4 * time.Second) // what the transactions themselves cost is there before
	heap, dropped := r.Node.Heap(), r.Metric("rpc_subscription_dropped")
	for i := range n {
		ws := r.WS(r.Attacker(i))
		r.Must(ws.Send(rig.Batch(rig.Call(1, "eth_subscribe", "newPendingTransactions", true), rig.SlowCall(2))), "batch")
	}
	r.Working("slow calls")
	r.For(r.Seconds(8, 14))
	r.Flowed(f)
	if heap > 0 {
		r.AtMost("allocated", float64(r.Node.Heap()-heap), 96*mib, "B")
	} else {
		r.notSeen("memory")
	}
	// The one whose call still runs is dropped when it has ended.
	r.MetricBecomes("rpc_subscription_dropped", 10*time.Second, "7 more", func(v float64) bool { return v >= dropped+n-1 })
}

// subscribeMany asks// subscribeMany asks for k subscriptions to newHeads and counts the answers.
func subscribeMany(r *Run, ws *rig.WS, k int) (accepted, refused int) {
	go func() {
		for i := range k {
			if ws.Send(rig.Call(i, "eth_subscribe", "newHeads")) != nil {
				return
			}
		}
	}()
	for end := time.Now().Add(r.Seconds(25, 60)); accepted+refused < k; {
		rs, err := ws.Next(time.Until(end))
		if err != nil {
			r.Break("only %d of %d subscriptions were answered: %v", accepted+refused, k, err)
			return
		}
		for _, reply := range rs {
			switch {
			case reply.Method != "":
			case reply.Err == nil:
				accepted++
			case reply.Code() == codeLimit:
				refused++
			default:
				r.Break("refused with %v", reply.Err)
				refused++
			}
		}
	}
	return accepted, refused
}

// healthyCrowd has n clients follow logs and pending transactions while k of each
// are made as fast as possible.
func healthyCrowd(r *Run, n, k int) {
	acct := r.Account()
	logger, err := acct.Logger(r.Ctx)
	r.Must(err, "logger")

	type client struct {
		ws     *rig.WS
		subs   map[string]string
		logs   atomic.Int64
		txs    atomic.Int64
		closed atomic.Bool
	}
	watched := map[string]any{"address": logger}
	clients := make([]*client, n)
	for i := range clients {
		c := &client{ws: r.WS(r.Attacker(i % 20)), subs: make(map[string]string)}
		clients[i] = c
		for _, args := range [][]any{{"logs", watched}, {"newPendingTransactions"}} {
			reply, err := c.ws.Call(20*time.Second, "eth_subscribe", args...)
			r.Must(err, "subscribing")
			c.subs[reply.Text()] = args[0].(string)
		}
		go func() {
			for {
				rs, err := c.ws.Next(5 * time.Minute)
				if err != nil {
					c.closed.Store(true)
					return
				}
				for _, reply := range rs {
					var p struct {
						Subscription string `json:"subscription"`
					}
					json.Unmarshal(reply.Params, &p)
					if c.subs[p.Subscription] == "logs" {
						c.logs.Add(1)
					} else {
						c.txs.Add(1)
					}
				}
			}
		}()
	}
	// One block with k logs.
	r.Must(acct.Send(r.Ctx, acct.LogTx(logger, uint64(k))), "the transaction with logs")
	// k transactions in as few announcements as batches allow.
	sink := common.HexToAddress("0xee")
	c := r.HTTP(rig.Dialer{})
	for from := 0; from < k; from += 500 {
		var batch [][]byte
		for i := range min(500, k-from) {
			batch = append(batch, rig.RawTx(i, acct.Sign(&sink, nil, 21000)))
		}
		_, rs, err := c.SendBatch(r.Ctx, rig.Batch(batch...))
		r.Must(err, "sending transactions")
		for _, reply := range rs {
			if reply.Err != nil {
				r.Must(reply.Err, "sending transactions")
			}
		}
	}
	complete := func() (ok, closed int) {
		for _, c := range clients {
			if c.logs.Load() == int64(k) && c.txs.Load() >= int64(k) {
				ok++
			}
			if c.closed.Load() {
				closed++
			}
		}
		return
	}
	rig.Until(r.Ctx, 60*time.Second, func() bool { ok, closed := complete(); return ok+closed >= n })
	ok, closed := complete()
	r.Arrived("subscribers served or dropped", ok+closed, 1)
	r.Exactly("complete", ok, n)
	r.Exactly("dropped", closed, 0)
	if ok < n {
		for i, c := range clients {
			if c.logs.Load() != int64(k) || c.txs.Load() < int64(k) {
				r.Break("client %d has %s", i, fmt.Sprintf("%d logs, %d transactions of %d", c.logs.Load(), c.txs.Load(), k))
				break
			}
		}
	}
}
