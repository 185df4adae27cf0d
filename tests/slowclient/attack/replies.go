// SPDX-License-Identifier: LGPL-3.0-or-later

package attack

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"rpcguard/tests/slowclient/rig"
)

const replies = "replies"

// What memory may grow by while the budget for replies is fought for: twice that budget
// (see baseFlags), and half of it for what the node does besides.
const replyMemory = 640 * mib

func init() {
	add(&Case{
		Name: "replies-never-read", Number: 12, Family: replies, Needs: NeedChain, Flags: []string{"rpc.admission.concurrency=4"}, Before: fullBlock,
		Recipe: "8 clients ask for a reply of about 20 MB and never read it; four calls at once where that is limited",
		Bound:  "eth_blockNumber within 100 ms throughout",
		Why:    "who does not take his answer must not hold anybody's place",
		Run: func(r *Run) {
			body, size := r.bigReply()
			r.Note("reply", float64(size), "B")
			r.Unread(8, 0, body, 4)
			r.For(r.Seconds(5, 15))
			r.OnReport(func(p rig.PoliteReport) {
				r.Soft("eth_blockNumber at most", p.LightMax, Allow(100*time.Millisecond, p))
			})
		},
	}, &Case{
		Name: "replies-read-slowly", Number: 13, Family: replies, Needs: NeedChain, Flags: []string{"rpc.admission.concurrency=8"}, Before: fullBlock,
		Recipe: "50 clients, the same reply, reading 10 KB a second; eight calls at once where that is limited",
		Bound:  "memory grows by at most 640 MiB; polite calls served",
		Why:    "slow readers are paid for in memory, and that must end somewhere",
		Run: func(r *Run) {
			body, _ := r.bigReply()
			before := r.Watch.Peak()
			for _, c := range r.Unread(50, 0, body, 8) {
				go rig.Trickle(r.Ctx, c, 10_000)
			}
			r.For(r.Seconds(6, 20))
			r.MemorySince(before, replyMemory)
		},
	}, &Case{
		Name: "ws-blocks-never-read", Number: 34, Family: replies, Quick: true, Needs: NeedChain | NeedWS, Before: fullBlock,
		Recipe: "4 WebSockets pipeline 100 reads of a full block and never read",
		Bound:  "memory grows by at most 640 MiB; heads on time",
		Why:    "answers that nobody takes must not fill the memory",
		Run: func(r *Run) {
			block, _ := r.BigBlock(60)
			before := r.Watch.Peak()
			began := 0
			for i := range 4 {
				ws := r.WS(r.narrow(i))
				defer func() {
					ws.Net.SetReadDeadline(time.Now().Add(5 * time.Second))
					ws.Net.Read(make([]byte, 1)) // nothing is read of it before
					if ws.Net.In.Load() > 0 {
						began++
					}
					if i == 0 { // the last to be called
						r.Arrived("connections with an answer", began, 4)
					}
				}()
				for k := range 100 {
					if ws.Send(rig.Call(k, "eth_getBlockByNumber", block, true)) != nil {
						break
					}
				}
			}
			r.For(r.Seconds(4, 20))
			r.MemorySince(before, replyMemory)
		},
	}, &Case{
		Name: "http-batches-never-read", Number: 35, Family: replies, Needs: NeedChain, Before: fullBlock,
		Recipe: "64 HTTP batches of two full blocks, never read",
		Bound:  "memory grows by at most 640 MiB",
		Why:    "answers that nobody takes must not fill the memory",
		Run: func(r *Run) {
			block, _ := r.BigBlock(60)
			before := r.Watch.Peak()
			call := rig.Call(1, "eth_getBlockByNumber", block, true)
			r.Unread(64, 0, rig.Batch(call, call), 8)
			r.For(r.Seconds(6, 20))
			r.MemorySince(before, replyMemory)
		},
	}, &Case{
		Name: "http-pipelined-never-read", Family: replies, Needs: NeedChain, Before: fullBlock,
		Recipe: "64 HTTP/1.1 connections pipeline 8 reads of a full block and never read",
		Bound:  "memory grows by at most 640 MiB",
		Why:    "answers that nobody takes must not fill the memory",
		Run: func(r *Run) {
			block, _ := r.BigBlock(60)
			before := r.Watch.Peak()
			conns := make([]*rig.RawHTTP, 64)
			for i := range conns {
				conns[i] = r.Raw(r.narrow(i))
				for range 8 {
					r.Must(conns[i].Request(rig.Call(1, "eth_getBlockByNumber", block, true)), "call")
				}
			}
			r.Began(conns, 8)
			r.For(r.Seconds(6, 20))
			r.MemorySince(before, replyMemory)
		},
	}, &Case{
		Name: "h2-streams-never-read", Family: replies, Needs: NeedChain | NeedH2, Before: fullBlock,
		Recipe: "100 streams of one HTTP/2 connection ask for a full block; the connection is never read",
		Bound:  "memory grows by at most 640 MiB",
		Why:    "one TCP connection must not hold a hundred answers",
		Run: func(r *Run) {
			block, _ := r.BigBlock(60)
			before := r.Watch.Peak()
			h := r.H2(r.narrow(0))
			call := rig.Call(1, "eth_getBlockByNumber", block, true)
			for range 100 {
				id, err := h.Open(int64(len(call)), false)
				if err != nil || h.Data(id, call, true) != nil {
					break
				}
			}
			h.StopReading()
			r.Working("the streams' calls")
			r.For(r.Seconds(6, 20))
			r.MemorySince(before, replyMemory)
		},
	}, &Case{
		Name: "block-trace", Number: 36, Family: replies, Quick: true, Needs: NeedChain,
		Recipe: "one debug_traceBlockByNumber, 77 bytes, of a block with 50 million gas of steps",
		Bound:  "memory grows by at most 1.2 GiB; no answer over 256 MiB",
		Why:    "77 bytes must not buy five gigabytes",
		Run:    blockTrace,
	}, &Case{
		Name: "simulated-returns", Number: 36, Family: replies, Needs: NeedChain,
		Recipe: "one eth_simulateV1 of 200 calls that return 1 MiB each, a request of 15 KB",
		Bound:  "memory grows by at most 768 MiB; no answer over 256 MiB",
		Why:    "a request of 15 KB must not buy gigabytes",
		Run: func(r *Run) {
			calls := strings.TrimSuffix(strings.Repeat(`{"to":"0x00000000000000000000000000000000000000cc","gas":"0x400000"},`, 200), ",")
			c := r.HTTP(r.Attacker(0))
			_, reply, err := c.Send(r.Ctx, rig.Call(1, "eth_simulateV1", rig.Raw(`{"blockStateCalls":[{"blockOverrides":{"gasLimit":"0x40000000"},"stateOverrides":`+
				`{"0x00000000000000000000000000000000000000cc":{"code":"0x621000006000f3"}},"calls":[`+calls+`]}]}`), "latest"))
			simulated := 1 // a node that was ended, or the client's time, may cut it
			if err == nil {
				r.AtMost("answer", float64(len(reply.Result)), 256*mib, "B")
				r.Note("code", float64(reply.Code()), "")
				if code := reply.Code(); code == -32601 {
					r.Skip("no eth_simulateV1")
				} else if code != 0 && code != -32003 && code != -32005 {
					simulated = 0 // refused for another reason than its size
				}
			}
			r.Arrived("simulations", simulated, 1)
			r.MemoryAtMost(768 * mib)
		},
	}, &Case{
		Name: "growing-traces", Family: replies,
		Recipe: "four debug_traceCall that collect steps for 20 s",
		Bound:  "memory grows by at most 1.2 GiB",
		Why:    "what a trace collects counts before it is an answer",
		Run: func(r *Run) {
			t := r.flood(4, 4, func(int) []byte { return rig.GrowingTrace(1, "20s") })
			r.Working("traces")
			r.For(r.Seconds(8, 22))
			r.MemoryAtMost(1228 * mib)
			r.Note("ended by a limit", float64(t.Get("large")+t.Get("limit")), "")
		},
	}, &Case{
		Name: "slow-readers-lock-out", Number: 49, Family: replies, Needs: NeedChain | NeedWS, Before: fullBlock,
		Recipe: "over two WebSockets each, 13 clients take a reply of 20 MB at 2 KiB a second, and ask again when they are cut; others ask for the block, again after a refusal, and read it",
		Bound:  "others are served, each within 15 s",
		Why:    "a limit on bytes must not become the cheaper way to lock everybody out",
		Run: func(r *Run) {
			body, _ := r.bigReply()
			block, _ := r.BigBlock(60)
			call := rig.Call(1, "eth_getBlockByNumber", block, true)
			var begun atomic.Int64
			for i := range 26 {
				go r.sip(r.narrow(i%13), body, &begun)
			}
			rig.Until(r.Ctx, 20*time.Second, func() bool { return begun.Load() >= 8 })
			r.Arrived("answers begun", int(begun.Load()), 8)
			r.For(2 * time.Second)
			var t Tally
			var longest time.Duration
			for i := range 10 {
				other := r.HTTP(r.Attacker(200 + i))
				begun, got := time.Now(), ""
				rig.Until(r.Ctx, 15*time.Second, func() bool {
					got = outcome(other.Send(r.Ctx, call))
					return got == "served"
				})
				t.Add(got)
				longest = max(longest, time.Since(begun))
			}
			r.AtLeast("others served", float64(t.Get("served")), 10, "")
			r.Note("within", longest.Seconds(), "s")
		},
	})
}

// sip asks over WebSocket, takes the answer at 2 KiB a second, and asks again when it
// is refused or cut, until the case is over. begun counts the answers worth the name.
func (r *Run) sip(from rig.Dialer, body []byte, begun *atomic.Int64) {
	for r.Ctx.Err() == nil {
		ws, err := rig.DialWS(r.Ctx, r.Node.WS, from)
		if err == nil && ws.Send(body) == nil {
			// A refusal is over with a few bytes: 5 s are enough to tell.
			short, cancel := context.WithTimeout(r.Ctx, 5*time.Second)
			n, _ := rig.Trickle(short, ws.Net, 2048)
			cancel()
			if n > 4096 && short.Err() != nil {
				begun.Add(1)
				rig.Trickle(r.Ctx, ws.Net, 2048)
			}
		}
		if ws != nil {
			ws.Close()
		}
		rig.Sleep(r.Ctx, time.Second)
	}
}

// bigReply asks for a full block so often in one request that the reply is 20 MB or a
// little more. Upstream's limit of a batch's replies is 25 MB.
func (r *Run) bigReply() (body []byte, size int) {
	block, one := r.BigBlock(60)
	call := rig.Call(1, "eth_getBlockByNumber", block, true)
	k := max(1, min((20_000_000+one-1)/one, 24_000_000/one))
	calls := make([][]byte, k)
	for i := range calls {
		calls[i] = call
	}
	return rig.Batch(calls...), k * one
}

func blockTrace(r *Run) {
	acct := r.Account()
	loop, err := acct.Deploy(r.Ctx, common.FromHex("5b600056"))
	r.Must(err, "looping contract")
	// The loops end for want of gas, which is what a block is made of here.
	const each, k = 12_500_000, 4
	var batch [][]byte
	var last common.Hash
	for i := range k {
		tx := acct.Sign(&loop, nil, each)
		last = tx.Hash()
		batch = append(batch, rig.RawTx(i, tx))
	}
	c := r.HTTP(rig.Dialer{})
	_, rs, err := c.SendBatch(r.Ctx, rig.Batch(batch...))
	r.Must(err, "sending loops")
	for _, reply := range rs {
		if reply.Err != nil {
			r.Must(reply.Err, "sending loops")
		}
	}
	number, err := rig.MinedIn(r.Ctx, c, last)
	r.Must(err, "the block of loops")
	before := r.Watch.Peak()
	raw := r.Raw(r.Attacker(0))
	r.Must(raw.Request(rig.Call(1, "debug_traceBlockByNumber", fmt.Sprintf("0x%x", number))), "trace")
	working := r.WorkingMeanwhile("the trace")
	status, _, body, err := raw.Response(r.Seconds(20, 60))
	working()
	if err == nil {
		r.Note("status", float64(status), "")
		r.Note("answer", float64(len(body)), "B")
		r.Check(bytes.Contains(body, []byte(`"error"`)) || len(body) <= 256*mib, "an answer of %s", FormatBytes(int64(len(body))))
	}
	r.MemorySince(before, 1228*mib)
}
