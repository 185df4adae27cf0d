// SPDX-License-Identifier: LGPL-3.0-or-later

package attack

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"rpcguard/tests/slowclient/rig"
)

const calls = "calls"

func init() {
	add(&Case{
		Name: "batches-of-slow-calls", Number: 8, Family: calls, Quick: true,
		Recipe: "8 clients post a batch of 1000 slow calls each",
		Bound:  "polite latency; entries refused one by one, the array whole and in order",
		Why:    "a batch is a thousand calls, not one",
		Run:    slowBatches,
	}, &Case{
		Name: "heavy-traces", Number: 9, Family: calls, Quick: true,
		Recipe: "100 debug_traceCall that loop, from 10 clients",
		Bound:  "polite latency",
		Why:    "tracing must not slow down everything else",
		Run: func(r *Run) {
			t := r.flood(100, 10, func(i int) []byte { return rig.SlowTrace(1, "10s") })
			r.Working("traces")
			r.For(r.Seconds(3, 10))
			r.Note("refused", float64(t.Get("busy")), "")
			t.Leave()
		},
	}, &Case{
		Name: "pipelined-slow-calls", Number: 10, Family: calls, Quick: true, Needs: NeedWS,
		Recipe: "1000 slow calls pipelined on one WebSocket, which then leaves; 20 polite clients beside it",
		Bound:  "polite latency; 99 % of what the 20 ask served; at most 256 calls of it in flight, and a goroutine each; the processor is idle 1 s after it left",
		Why:    "one connection must not be able to take every processor, nor keep it after it is gone",
		Run:    pipelined,
	}, &Case{
		Name: "pipelined-one-address", Number: 10, Family: calls, Needs: NeedWS,
		Recipe: "200 WebSockets of one address, 50 slow calls pipelined on each, more than there are places; 20 polite clients beside them",
		Bound:  "polite latency; 99 % of what the 20 ask served; the processor is idle 1 s after they left",
		Why:    "what one connection cannot do, many of one client cannot either",
		Run: func(r *Run) {
			crowd := r.Crowd(20)
			conns := make([]*rig.WS, 200)
			for i := range conns {
				conns[i] = r.WS(r.Attacker(0))
			}
			frames := bytes.Repeat(rig.Frame(true, 1, rig.SlowCall(1)), 50)
			Parallel(len(conns), func(i int) { conns[i].Net.Write(frames) })
			r.Working("slow calls")
			busy := r.Node.Load(r.Ctx, r.Seconds(3, 10))
			asked, served := crowd.Stop()
			r.AtLeast("of the 20 served", float64(served)/float64(max(1, asked)), 0.99, "")
			for _, ws := range conns {
				ws.Abort()
			}
			r.IdleAfterLeaving(busy)
		},
	}, &Case{
		Name: "slow-notifications", Number: 16, Family: calls, Quick: true, Needs: NeedWS,
		Recipe: "1000 slow calls without id on one WebSocket, 100 more over HTTP",
		Bound:  "polite latency; the processor is idle 1 s after they left",
		Why:    "leaving the id out is no way around the limit",
		Run: func(r *Run) {
			ws := r.WS(r.Attacker(0))
			for range 1000 {
				if ws.Send(rig.SlowNotification()) != nil {
					break
				}
			}
			t := r.flood(100, 10, func(int) []byte { return rig.SlowNotification() })
			r.leaves(r.Seconds(2, 6), func() { t.Leave(); ws.Abort() })
		},
	}, &Case{
		Name: "graphql-slow-calls", Number: 28, Family: calls, Quick: true, Needs: NeedGraphQL | NeedChain,
		Recipe: "60 GraphQL queries that call a looping contract, from 10 clients",
		Bound:  "polite latency",
		Why:    "GraphQL runs the same EVM and needs the same limit",
		Run:    graphQL,
	}, &Case{
		Name: "small-calls-pipelined", Number: 33, Family: calls, Quick: true, Needs: NeedWS, MemoryLimit: 2 << 30,
		Recipe: "one WebSocket pipelines 300000 small calls and never reads a reply",
		Bound:  "memory grows by at most 256 MiB",
		Why:    "calls whose answers nobody takes must not pile up",
		Run: func(r *Run) {
			ws := r.WS(r.narrow(0))
			call := rig.Call(1, "eth_getBlockByNumber", "latest", false)
			frames := bytes.Repeat(rig.Frame(true, 1, call), 500)
			sent := 0
			for end := time.Now().Add(r.Seconds(8, 20)); sent < 300_000 && time.Now().Before(end); sent += 500 {
				ws.Net.SetWriteDeadline(time.Now().Add(2 * time.Second))
				if _, err := ws.Net.Write(frames); err != nil {
					break // it is not read any more
				}
			}
			r.Arrived("calls taken", sent, 500)
			r.Note("taken", float64(sent), "")
			r.For(time.Second)
			r.MemoryAtMost(256 * mib)
		},
	}, &Case{
		Name: "javascript-tracer", Number: 45, Family: calls, Flags: []string{"rpc.heavy.jstracers=false"},
		Recipe: "debug_traceCall with a JavaScript tracer that doubles a string 26 times; where there is a flag to refuse those, it is set",
		Bound:  "memory grows by at most 256 MiB",
		Why:    "who may write programs for the node may fill its memory",
		Run: func(r *Run) {
			js := `{s:"x",step:function(){if(this.s.length<67108864){for(var i=0;i<26;i++){this.s=this.s+this.s}}},fault:function(){},result:function(){return this.s.length}}`
			cfg := fmt.Sprintf(`{"tracer":%q,"stateOverrides":{"0x00000000000000000000000000000000000000cc":{"code":"0x600056"}}}`, js)
			body := rig.Call(1, "debug_traceCall", rig.Raw(`{"to":"0x00000000000000000000000000000000000000cc","gas":"0xffff"}`), "latest", rig.Raw(cfg))
			var t Tally
			Parallel(2, func(i int) { t.Add(outcome(r.HTTP(r.Attacker(i)).Send(r.Ctx, body))) })
			r.Arrived("calls answered", 2-t.Get("error"), 1)
			r.Note("refused", float64(t.Get("failed")), "")
			r.MemoryAtMost(256 * mib)
		},
	}, &Case{
		Name: "parked-transactions", Number: 46, Family: calls, Needs: NeedChain,
		Recipe: "640 eth_sendRawTransactionSync with gaps in their nonces",
		Bound:  "polite latency; eth_call and eth_getBalance of others served",
		Why:    "calls that only sleep must not use up the places of those that work",
		Run: func(r *Run) {
			acct := r.Account()
			sink := common.HexToAddress("0xee")
			_, reply, err := r.HTTP(r.Attacker(0)).Send(r.Ctx, rig.Call(1, "eth_sendRawTransactionSync", "0x00"))
			r.Must(err, "eth_sendRawTransactionSync")
			if reply.Code() == -32601 {
				r.Skip("no eth_sendRawTransactionSync")
			}
			before := r.Node.Goroutines()
			t := r.flood(640, 16, func(i int) []byte {
				tx := acct.SignNonce(uint64(100+i*2), &sink, nil, 21000)
				return bytes.Replace(rig.RawTx(1, tx), []byte("eth_sendRawTransaction"), []byte("eth_sendRawTransactionSync"), 1)
			})
			r.Goroutines("calls that sleep", before, 600)
			// They sleep for 20 s, and that is the abuse; that 640 calls of any kind come
			// within a moment is not.
			r.For(r.Seconds(2, 15))
			var other Tally
			for range 20 {
				other.Add(outcome(r.HTTP(r.Attacker(500)).Send(r.Ctx, rig.Call(1, "eth_call", rig.Raw(`{"to":"0x00000000000000000000000000000000000000cc"}`), "latest"))))
			}
			r.Exactly("eth_call served", other.Get("served"), 20)
			t.Leave()
		},
	}, &Case{
		Name: "light-flood", Number: 48, Family: calls,
		Recipe: "one client sends eth_blockNumber as fast as 32 connections allow",
		Bound:  "polite latency",
		Why:    "one client in a hurry must not be everybody's problem",
		Run: func(r *Run) {
			ctx, cancel := context.WithTimeout(r.Ctx, r.Seconds(4, 10))
			defer cancel()
			var n atomic.Int64
			Parallel(32, func(i int) {
				c := r.HTTP(r.Attacker(0))
				call := rig.Call(1, "eth_blockNumber")
				for ctx.Err() == nil {
					if _, _, err := c.Send(ctx, call); err == nil {
						n.Add(1)
					}
				}
			})
			r.Arrived("calls answered", int(n.Load()), 100)
			r.Note("calls", float64(n.Load()), "")
		},
	}, &Case{
		Name: "many-methods", Family: calls, Needs: NeedChain,
		Recipe: "slow work under other names: eth_estimateGas, eth_createAccessList, eth_simulateV1, eth_resend, eth_getProof of many keys, wide eth_getLogs, debug_traceBlock, 20 of each",
		Bound:  "polite latency",
		Why:    "the limit is on work, not on one method's name",
		Run: func(r *Run) {
			keys := make([]string, 1000)
			for i := range keys {
				keys[i] = fmt.Sprintf(`"0x%x"`, i+1)
			}
			loop, over := `{"to":"0x00000000000000000000000000000000000000cc"}`, `{"0x00000000000000000000000000000000000000cc":{"code":"0x5b600056"}}`
			bodies := [][]byte{
				rig.Call(1, "eth_estimateGas", rig.Raw(loop), "latest", rig.Raw(over)),
				rig.Call(1, "eth_createAccessList", rig.Raw(loop), "latest", rig.Raw(over)),
				rig.Call(1, "eth_simulateV1", rig.Raw(`{"blockStateCalls":[{"stateOverrides":`+over+`,"calls":[`+loop+`]}]}`), "latest"),
				rig.Call(1, "eth_resend", rig.Raw(fmt.Sprintf(`{"from":"%v","nonce":"0x0","data":"0x5b600056"}`, r.Account().Addr))), // estimates the gas first
				rig.Call(1, "eth_getProof", "0x00000000000000000000000000000000000000cc", rig.Raw("["+strings.Join(keys, ",")+"]"), "latest"),
				rig.Call(1, "eth_getLogs", rig.Raw(`{"fromBlock":"0x0","toBlock":"latest"}`)),
				rig.SlowTrace(1, ""),
			}
			t := r.flood(20*len(bodies), 10, func(i int) []byte { return bodies[i%len(bodies)] })
			r.Working("slow calls")
			r.For(r.Seconds(4, 8))
			r.Note("refused", float64(t.Get("busy")), "")
			t.Leave()
		},
	}, &Case{
		Name: "slow-calls-many-clients", Family: calls,
		Recipe: "200 slow calls over HTTP from 50 clients",
		Bound:  "polite latency; the processor is idle 1 s after they left",
		Why:    "slow calls from many addresses at once",
		Run: func(r *Run) {
			t := r.flood(200, 50, func(i int) []byte { return rig.SlowCall(i) })
			r.leaves(r.Seconds(4, 8), t.Leave)
			r.Note("refused", float64(t.Get("busy")), "")
		},
	}, &Case{
		Name: "page-of-small-calls", Family: calls, Needs: NeedChain,
		Recipe: "one client sends 200 small eth_calls at once",
		Bound:  "every one served",
		Why:    "an ordinary web page must not be refused",
		Run: func(r *Run) {
			var t Tally
			c := r.HTTP(r.Attacker(0))
			Parallel(200, func(i int) {
				t.Add(outcome(c.Send(r.Ctx, rig.Call(i, "eth_call", rig.Raw(`{"to":"0x00000000000000000000000000000000000000cc"}`), "latest"))))
			})
			r.Arrived("calls answered", 200-t.Get("error"), 200)
			r.Exactly("served", t.Get("served"), 200)
		},
	})
}

// Flood is many calls under way, each on a connection of its own.
type Flood struct {
	Tally
	cancel context.CancelFunc
	done   chan struct{}
}

// Leave gives all of them up by resets and waits for that.
func (f *Flood) Leave() { f.cancel(); <-f.done }

// flood sends n calls at once from as many clients as said. What they send is built,
// and all are connected, before the first is sent: the suite runs beside the node on the
// same processors, and its own work must not pass for the node's.
func (r *Run) flood(n, clients int, body func(i int) []byte) *Flood {
	ctx, cancel := context.WithCancel(r.Ctx)
	f := &Flood{cancel: cancel, done: make(chan struct{})}
	r.OnClose(f.Leave)
	bodies := make([][]byte, n)
	for i := range bodies {
		bodies[i] = body(i)
	}
	var up atomic.Int64
	var connected sync.WaitGroup
	connected.Add(n)
	ready := make(chan struct{})
	go func() {
		defer close(f.done)
		Parallel(n, func(i int) {
			c, err := rig.DialRaw(ctx, r.Node.HTTP, r.Attacker(i%clients))
			connected.Done()
			connected.Wait()
			if err == nil {
				defer c.Close()
				defer context.AfterFunc(ctx, func() { c.Close() })()
				err = c.Request(bodies[i])
			}
			if up.Add(1) == int64(n) {
				close(ready)
			}
			if err != nil {
				f.Add("error")
				return
			}
			status, _, b, err := c.Response(2 * time.Minute)
			if err != nil {
				f.Add("error")
				return
			}
			rs, err := rig.DecodeReplies(b)
			if err != nil || len(rs) == 0 {
				f.Add("empty")
				return
			}
			f.Add(outcome(status, rs[0], nil))
		})
	}()
	select {
	case <-ready:
	case <-ctx.Done():
	}
	return f
}

func slowBatches(r *Run) {
	const n = 1000
	var batch [][]byte
	for i := range n {
		batch = append(batch, rig.SlowCall(i))
	}
	body := rig.Batch(batch...)
	// Those that run until their time-out are not waited for.
	const clients, enough = 8, 7
	ctx, cancel := context.WithTimeout(r.Ctx, r.Seconds(9, 15))
	defer cancel()
	var answered, refused atomic.Int64
	working := r.WorkingMeanwhile("batches")
	Parallel(clients, func(i int) {
		_, rs, err := r.HTTP(r.Attacker(i)).SendBatch(ctx, body)
		if err != nil {
			return
		}
		if answered.Add(1) >= enough {
			defer cancel()
		}
		if !r.Check(len(rs) == n, "an array of %d for %d calls", len(rs), n) {
			return
		}
		for k, reply := range rs {
			if string(reply.ID) != fmt.Sprint(k) {
				r.Break("id %s at place %d", reply.ID, k)
				return
			}
			if reply.Code() == codeBusy {
				refused.Add(1)
			}
		}
	})
	working()
	r.Note("batches answered", float64(answered.Load()), "")
	r.Note("entries refused", float64(refused.Load()), "")
	if r.Guarded() {
		r.AtLeast("batches answered in time", float64(answered.Load()), 5, "")
	}
}

func pipelined(r *Run) {
	const most = 256
	before := r.Node.Goroutines()
	crowd := r.Crowd(20)
	ws := r.WS(r.Attacker(0))
	for i := range 1000 {
		if ws.Send(rig.SlowCall(i)) != nil {
			break
		}
	}
	r.Working("slow calls")
	if before >= 0 {
		// The crowd's connections and calls have a few each, the polite client too.
		r.AtMost("goroutines more", float64(r.Node.Goroutines()-before), 2*most+200, "")
	}
	if r.Guarded() && r.Node.IPC != "" {
		l, err := getLimits(r.IPC())
		r.Must(err, "admin_getConcurrencyLimit")
		r.AtMost("in flight", float64(l.Executing+l.Queued), most+20, "")
	}
	busy := r.Node.Load(r.Ctx, r.Seconds(2, 6))
	asked, served := crowd.Stop()
	r.AtLeast("of the 20 served", float64(served)/float64(max(1, asked)), 0.99, "")
	ws.Abort()
	r.IdleAfterLeaving(busy)
}

func graphQL(r *Run) {
	acct := r.Account()
	loop, err := acct.Deploy(r.Ctx, common.FromHex("5b600056"))
	r.Must(err, "looping contract")
	query := fmt.Sprintf(`{block{call(data:{to:%q}){gasUsed}}}`, loop.Hex())
	ctx, cancel := context.WithTimeout(r.Ctx, r.Seconds(4, 10))
	defer cancel()
	defer r.WorkingMeanwhile("queries")()
	var t Tally
	Parallel(60, func(i int) { t.Add(r.query(ctx, i%10, query)) })
	r.Note("refused", float64(t.Get("429")), "")
}
