// SPDX-License-Identifier: LGPL-3.0-or-later

package attack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"sync/atomic"
	"time"

	"rpcguard/tests/slowclient/rig"
)

const limits = "limits"

// Where exact counts are asked for, calls are given 4 s of the EVM: long enough
// that all of them arrive while the first ones run, on a slow machine too.
const evm4s = "rpc.evmtimeout=4s"

func init() {
	add(&Case{
		Name: "exact-refusals", Number: 18, Family: limits, Quick: true, Needs: NeedMetrics | NeedChain, NoPolite: true,
		Flags:  []string{"rpc.admission.concurrency=10", "rpc.admission.cpu=10", "rpc.admission.queue=6", "rpc.admission.wait=1m0s", evm4s},
		Recipe: "30 calls at once from one client; concurrency and cpu 10, queue 6",
		Bound:  "exactly 14 refused, at once; arrived = served + failed + refused + cancelled = 30",
		Why:    "a limit that is off by some is not a limit, and its books must be right",
		Run: func(r *Run) {
			var before Books
			if r.Guarded() {
				before = r.BooksNow()
			}
			t := r.flood(30, 1, func(i int) []byte { return rig.SlowCall(i) })
			r.Working("calls")
			rig.Until(r.Ctx, 3*time.Second, func() bool { return t.Get("busy") >= 14 })
			r.Exactly("refused at once", t.Get("busy"), 14)
			if r.Guarded() {
				var l limitsReply
				ipc := r.IPC()
				rig.Until(r.Ctx, 2*time.Second, func() bool { l, _ = getLimits(ipc); return l.Executing == 10 && l.Queued == 6 })
				r.Exactly("executing", l.Executing, 10)
				r.Exactly("waiting", l.Queued, 6)
			}
			if r.Quick {
				t.Leave() // the calls end when the test says so
			} else {
				select {
				case <-t.done:
				case <-time.After(25 * time.Second):
					r.Break("not all answered: %s", t)
				}
			}
			r.Exactly("refused", t.Get("busy"), 14)
			if r.Guarded() {
				// The page is brought up to date once a second.
				var b Books
				rig.Until(r.Ctx, 4*time.Second, func() bool { b = r.Books().Sub(before); return b.Arrived >= 30 && b.Balanced() })
				r.Exactly("arrived", int(b.Arrived), 30)
				r.Exactly("booked as refused", int(b.Refused), 14)
				r.Check(b.Balanced(), "books: %+v", b)
				r.GaugesZero(3 * time.Second)
			}
		},
	}, &Case{
		Name: "exact-heavy", Number: 19, Family: limits, Quick: true, Needs: NeedChain, NoPolite: true,
		Flags:  []string{"rpc.admission.concurrency=4", "rpc.admission.cpu=4", "rpc.admission.queue=8", "rpc.admission.heavy=1", "rpc.admission.wait=1m0s"},
		Recipe: "12 traces at once; concurrency 4, queue 8, heavy 1; an ordinary call beside",
		Bound:  "exactly 9 refused; the ordinary call answered at once",
		Why:    "heavy work has a share of its own and leaves the rest alone",
		Run: func(r *Run) {
			t := r.flood(12, 1, func(i int) []byte { return rig.SlowTrace(i, "4s") })
			r.Working("traces")
			rig.Until(r.Ctx, 3*time.Second, func() bool { return t.Get("busy") >= 9 })
			begun := time.Now()
			status, reply, err := r.HTTP(r.Attacker(1)).Send(r.Ctx, rig.Call(1, "eth_getBalance", "0x00000000000000000000000000000000000000cc", "latest"))
			r.Check(outcome(status, reply, err) == "served", "an ordinary call beside them: %s", outcome(status, reply, err))
			r.AtMost("ordinary call", time.Since(begun).Seconds(), 1, "s")
			r.Exactly("refused", t.Get("busy"), 9)
			t.Leave()
			r.GaugesZero(6 * time.Second)
		},
	}, &Case{
		Name: "shrink-and-grow", Number: 20, Family: limits, Needs: NeedGuard | NeedIPC, NoPolite: true,
		Flags:  []string{"rpc.admission.concurrency=4", "rpc.admission.cpu=4", "rpc.admission.queue=8", "rpc.admission.wait=1m0s"},
		Recipe: "four slow calls run; concurrency is set to 1, then to 8, over IPC",
		Bound:  "4 executing reported, nobody admitted meanwhile, the waiter woken at once by growing",
		Why:    "limits can be changed on a running node without cutting anybody off",
		Run:    shrinkGrow,
	}, &Case{
		Name: "resize-under-fire", Number: 21, Family: limits, Needs: NeedGuard | NeedIPC, NoPolite: true,
		Recipe: "concurrency 64, 1, 64, ... every 10 ms under 500 clients, batches, disconnects",
		Bound:  "never more than 64 executing; all gauges back to zero, the books balanced",
		Why:    "changing limits under load loses nothing",
		Run:    resizeStorm,
	}, &Case{
		Name: "trusted-under-fire", Number: 22, Family: limits, Quick: true, Needs: NeedIPC | NeedAuth, Engine: true,
		Recipe: "200 slow calls and 100 traces from 50 clients; engine calls with a token, admin calls over IPC",
		Bound:  "each answered, and at the 99th percentile as fast as idle (three times, or 25 ms more)",
		Why:    "the consensus client and the operator must always get through",
		Run:    trusted,
	}, &Case{
		Name: "exact-bodies", Number: 25, Family: limits, Needs: NeedChain, NoPolite: true,
		Flags:  []string{"rpc.http-body-limit=2", "rpc.body.ws-limit=2097152", "rpc.body.budget=7300000", "rpc.admission.wait=1m0s", evm4s},
		Recipe: "8 bodies of 1.6 MB with a slow call each, against a budget that holds 3",
		Bound:  "exactly 5 read 503 and -32005 while 3 bodies are in use; a retry succeeds; nothing in use afterwards",
		Why:    "the budget holds what it says and gives back what it took",
		Run: func(r *Run) {
			slow := rig.SlowCall(1)
			body := append(slow, bytes.Repeat([]byte(" "), 1_600_000-len(slow))...)
			t := r.flood(8, 8, func(int) []byte { return body })
			r.Working("slow calls")
			rig.Until(r.Ctx, 3*time.Second, func() bool { return t.Get("limit") >= 5 })
			r.Exactly("refused", t.Get("limit"), 5)
			// Exactly three are held, at their length each.
			r.MetricBecomes("rpc_body_inuse", 2*time.Second, "3 bodies", func(v float64) bool { return v == float64(3*len(body)) })
			select {
			case <-t.done:
			case <-time.After(30 * time.Second):
				r.Break("not all answered: %s", t)
			}
			r.Exactly("refused in all", t.Get("limit"), 5)
			light := rig.Call(1, "eth_blockNumber")
			light = append(light, bytes.Repeat([]byte(" "), 1_600_000-len(light))...)
			var again Tally
			again.Add(outcome(r.HTTP(r.Attacker(0)).Send(r.Ctx, light)))
			r.Exactly("retry served", again.Get("served"), 1)
			r.MetricBecomes("rpc_body_inuse", 3*time.Second, "0", func(v float64) bool { return v == 0 })
		},
	}, &Case{
		Name: "panics-with-a-permit", Number: 30, Family: limits,
		Recipe: "a handler panics while it holds bytes and a permit; panicking calls in the log",
		Bound:  "both returned; sampled",
		Why:    "a bug in a method must not leak a place",
		Run: func(r *Run) {
			r.Skip("no method of a release panics when asked to; package rpc's own tests pin it")
		},
	}, &Case{
		Name: "books-balance", Family: limits, Needs: NeedGuard | NeedMetrics, NoPolite: true,
		Recipe: "served, failing, refused and abandoned calls of every class, over HTTP, batches and WebSocket",
		Bound:  "arrived = served + failed + refused + cancelled, in every class; gauges at zero",
		Why:    "an operator must be able to trust the numbers",
		Run:    booksBalance,
	})
}

// limitsReply is what the admin calls answer.
type limitsReply struct {
	Executing int `json:"executingRequests"`
	Queued    int `json:"queuedRequests"`
	Max       int `json:"maxConcurrent"`
	Queue     int `json:"maxQueueSize"`
}

func getLimits(c *rig.IPC) (l limitsReply, err error) {
	reply, err := c.Call(10*time.Second, "admin_getConcurrencyLimit")
	if err == nil && reply.Err != nil {
		err = reply.Err
	}
	if err == nil {
		err = json.Unmarshal(reply.Result, &l)
	}
	return l, err
}

func setConcurrency(c *rig.IPC, n int) (l limitsReply, err error) {
	reply, err := c.Call(10*time.Second, "admin_setConcurrencyLimit", map[string]int{"maxConcurrent": n})
	if err == nil && reply.Err != nil {
		err = reply.Err
	}
	if err == nil {
		err = json.Unmarshal(reply.Result, &l)
	}
	return l, err
}

func shrinkGrow(r *Run) {
	ipc := r.IPC()
	t := r.flood(4, 4, func(i int) []byte { return rig.SlowCall(i) })
	var l limitsReply
	var err error
	r.Check(rig.Until(r.Ctx, 5*time.Second, func() bool { l, err = getLimits(ipc); return err == nil && l.Executing == 4 }),
		"four calls should run: %+v %v", l, err)
	l, err = setConcurrency(ipc, 1)
	r.Must(err, "admin_setConcurrencyLimit")
	r.Arrived("calls executing", l.Executing, 1)
	r.Exactly("executing after shrinking", l.Executing, 4)
	r.Exactly("limit after shrinking", l.Max, 1)

	answered := make(chan string, 1)
	go func() {
		answered <- outcome(r.HTTP(r.Attacker(9)).Send(r.Ctx, rig.Call(1, "eth_getBalance", "0x00000000000000000000000000000000000000cc", "latest")))
	}()
	r.Check(rig.Until(r.Ctx, 3*time.Second, func() bool { l, err = getLimits(ipc); return err == nil && l.Queued == 1 }),
		"a newcomer should wait: %+v %v", l, err)
	select {
	case how := <-answered:
		r.Break("a newcomer was %s while four ran against a limit of 1", how)
	default:
	}
	begun := time.Now()
	l, err = setConcurrency(ipc, 8)
	r.Must(err, "admin_setConcurrencyLimit")
	select {
	case how := <-answered:
		r.Check(how == "served", "the waiter was %s", how)
		r.AtMost("woken after", time.Since(begun).Seconds(), 1, "s")
	case <-time.After(5 * time.Second):
		r.Break("growing did not wake the waiter")
	}
	reply, err := ipc.Call(5*time.Second, "admin_setConcurrencyLimit", map[string]int{"maxConcurrent": 0})
	r.Must(err, "admin_setConcurrencyLimit")
	r.Check(reply.Err != nil, "a concurrency of 0 was accepted")
	t.Leave()
	r.GaugesZero(5 * time.Second)
}

func resizeStorm(r *Run) {
	ipc := r.IPC()
	before := r.BooksNow()
	ctx, cancel := context.WithTimeout(r.Ctx, r.Seconds(4, 10))
	defer cancel()
	var most, changes atomic.Int64
	go Parallel(r.Scale(100, 500), func(i int) {
		rnd := rand.New(rand.NewSource(int64(i)))
		for ctx.Err() == nil {
			one, stop := context.WithTimeout(ctx, time.Duration(5+rnd.Intn(200))*time.Millisecond)
			c := rig.NewHTTP(r.Node.HTTP, r.Attacker(i%50))
			switch rnd.Intn(4) {
			case 0:
				c.SendBatch(one, rig.Batch(rig.Call(1, "eth_blockNumber"), rig.Call(2, "eth_gasPrice"), rig.SlowCall(3)))
			case 1:
				c.Send(one, rig.SlowCall(1))
			default:
				c.Send(one, rig.Call(1, "eth_getBalance", "0x00000000000000000000000000000000000000cc", "latest"))
			}
			c.Close()
			stop()
		}
	})
	for ctx.Err() == nil {
		l, err := setConcurrency(ipc, []int{64, 1}[changes.Add(1)%2])
		r.Must(err, "admin_setConcurrencyLimit")
		most.Store(max(most.Load(), int64(l.Executing)))
		rig.Sleep(ctx, 10*time.Millisecond)
	}
	_, err := setConcurrency(ipc, 640)
	r.Must(err, "admin_setConcurrencyLimit")
	r.Arrived("changes", int(changes.Load()), 20)
	r.Note("changes", float64(changes.Load()), "")
	r.AtMost("executing at most", float64(most.Load()), 64, "")
	r.GaugesZero(10 * time.Second)
	var b Books
	r.Check(rig.Until(r.Ctx, 5*time.Second, func() bool { b = r.Books().Sub(before); return b.Balanced() }), "books: %+v", b)
	r.AtLeast("calls arrived", b.Arrived, float64(r.Scale(100, 500)), "")
}

func trusted(r *Run) {
	engine := rig.NewHTTP(r.Node.Auth, rig.Dialer{})
	r.OnClose(engine.Close)
	ipc := r.IPC()
	ask := func(n int) (lat rig.Series) {
		call := rig.Call(1, "engine_exchangeCapabilities", []string{})
		for range n {
			begun := time.Now()
			_, _, body, err := engine.Post(r.Ctx, call, "Authorization", "Bearer "+r.Node.Token())
			lat.Add(time.Since(begun))
			r.Must(err, "engine call")
			if !bytes.Contains(body, []byte(`"result"`)) {
				r.Break("engine call answered %.200s", body)
				return
			}
			begun = time.Now()
			reply, err := ipc.Call(20*time.Second, "admin_nodeInfo")
			lat.Add(time.Since(begun))
			r.Must(err, "IPC call")
			if reply.Err != nil {
				r.Break("IPC call: %v", reply.Err)
				return
			}
			r.For(20 * time.Millisecond)
		}
		return
	}
	n := r.Scale(120, 300)
	idle := ask(n)
	t := r.flood(300, 50, func(i int) []byte {
		if i%3 == 0 {
			return rig.SlowTrace(1, "15s")
		}
		return rig.SlowCall(1)
	})
	r.Working("calls and traces")
	busy := ask(n)
	t.Leave()
	r.Note("idle p99", idle.Quantile(0.99).Seconds(), "s")
	r.OnReport(func(p rig.PoliteReport) {
		for _, q := range []float64{0.5, 0.99} {
			was := idle.Quantile(q)
			bound := Allow(max(3*was, was+25*time.Millisecond), p)
			r.Soft(fmt.Sprintf("under fire p%.0f", 100*q), busy.Quantile(q), bound)
		}
	})
}

func booksBalance(r *Run) {
	before, err := r.Node.Metrics()
	r.Must(err, "metrics")
	c := r.HTTP(r.Attacker(0))
	for i := range 20 {
		c.Send(r.Ctx, rig.Call(i, "eth_blockNumber"))
		c.Send(r.Ctx, rig.Call(i, "eth_getBalance", "0x00000000000000000000000000000000000000cc", "latest"))
		c.Send(r.Ctx, rig.Call(i, "eth_getBalance", "nonsense"))
		c.Send(r.Ctx, rig.Call(i, "no_suchMethod"))
		c.Send(r.Ctx, rig.Notification("eth_blockNumber"))
	}
	c.SendBatch(r.Ctx, rig.Batch(rig.Call(1, "eth_chainId"), rig.Call(2, "eth_gasPrice"), rig.Call(3, "no_such")))
	var large [][]byte
	for i := range 1100 {
		large = append(large, rig.Call(i, "eth_chainId"))
	}
	c.SendBatch(r.Ctx, rig.Batch(large...))
	ws := r.WS(r.Attacker(1))
	for i := range 50 {
		ws.Send(rig.Call(i, "eth_chainId"))
	}
	for i := range 300 {
		ws.Send(rig.SlowCall(i))
	}
	t := r.flood(100, 10, func(i int) []byte {
		if i%2 == 0 {
			return rig.SlowTrace(i, "10s")
		}
		return rig.SlowCall(i)
	})
	r.For(2 * time.Second)
	t.Leave()
	ws.Abort()
	r.GaugesZero(10 * time.Second)
	var bad string
	rig.Until(r.Ctx, 5*time.Second, func() bool {
		m, err := r.Node.Metrics()
		if err != nil {
			return false
		}
		bad = ""
		for _, class := range []string{"", "light_", "normal_", "compute_", "heavy_", "parked_"} {
			d := func(name string) float64 {
				key := "rpc_admission_" + class + name
				if _, ok := m[key]; !ok && class == "" {
					bad += " " + key + " is missing"
				}
				return m[key] - before[key]
			}
			b := Books{d("arrived"), d("served"), d("failed"), d("refused"), d("cancelled")}
			if !b.Balanced() {
				bad += fmt.Sprintf(" %q: %+v", class, b)
			}
			if class == "" && b.Arrived < 100 {
				bad += " next to nothing arrived"
			}
		}
		return bad == ""
	})
	r.Arrived("metrics page", 1, 1)
	r.Check(bad == "", "books:%s", bad)
}
