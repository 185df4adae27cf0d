// SPDX-License-Identifier: LGPL-3.0-or-later

package attack

import (
	"bytes"
	"fmt"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"rpcguard/tests/slowclient/rig"
)

const replies = "replies"

// The reply budget of these cases where there is one, and what memory may grow by
// under it: twice the budget, and a quarter for what the node does besides.
const (
	replyBudget = "rpc.reply.budget=268435456"
	replyMemory = 640 * mib
)

func init() {
	add(&Case{
		Name: "replies-never-read", Number: 12, Family: replies, Needs: NeedChain, Flags: []string{"rpc.admission.concurrency=4"},
		Recipe: "8 clients ask for a reply of about 12 MB and never read it; four calls at once where that is limited",
		Bound:  "eth_blockNumber within 100 ms throughout",
		Why:    "who does not take his answer must not hold anybody's place",
		Run: func(r *Run) {
			block, size := r.BigBlock(60)
			r.Note("reply", float64(size), "B")
			for i := range 8 {
				c := r.Raw(rig.Dialer{From: rig.Attacker(i).From, RcvBuf: 4096})
				r.Must(c.Request(rig.Call(1, "eth_getBlockByNumber", block, true)), "call")
			}
			r.For(r.Seconds(5, 15))
		},
	}, &Case{
		Name: "replies-read-slowly", Number: 13, Family: replies, Needs: NeedChain, Flags: []string{"rpc.admission.concurrency=8", replyBudget},
		Recipe: "50 clients, the same reply, reading 10 KB a second; eight calls at once where that is limited",
		Bound:  "memory grows by at most 640 MiB; polite calls served",
		Why:    "slow readers are paid for in memory, and that must end somewhere",
		Run: func(r *Run) {
			block, _ := r.BigBlock(60)
			before := r.Watch.Peak()
			for i := range 50 {
				c := r.Raw(rig.Dialer{From: rig.Attacker(i).From, RcvBuf: 4096})
				r.Must(c.Request(rig.Call(1, "eth_getBlockByNumber", block, true)), "call")
				go rig.Trickle(r.Ctx, c, 10_000)
			}
			r.For(r.Seconds(6, 20))
			r.AtMost("memory", float64(r.Watch.Peak()-before), replyMemory, "B")
		},
	}, &Case{
		Name: "ws-blocks-never-read", Number: 34, Family: replies, Quick: true, Needs: NeedChain | NeedWS, Flags: []string{replyBudget},
		Recipe: "4 WebSockets pipeline 100 reads of a full block and never read",
		Bound:  "memory grows by at most 640 MiB; heads on time",
		Why:    "answers that nobody takes must not fill the memory",
		Run: func(r *Run) {
			block, _ := r.BigBlock(60)
			before := r.Watch.Peak()
			for i := range 4 {
				ws := r.WS(rig.Dialer{From: rig.Attacker(i).From, RcvBuf: 4096})
				for k := range 100 {
					if ws.Send(rig.Call(k, "eth_getBlockByNumber", block, true)) != nil {
						break
					}
				}
			}
			r.For(r.Seconds(6, 20))
			r.AtMost("memory", float64(r.Watch.Peak()-before), replyMemory, "B")
		},
	}, &Case{
		Name: "http-batches-never-read", Number: 35, Family: replies, Needs: NeedChain, Flags: []string{replyBudget},
		Recipe: "64 HTTP batches of two full blocks, never read",
		Bound:  "memory grows by at most 640 MiB",
		Why:    "answers that nobody takes must not fill the memory",
		Run: func(r *Run) {
			block, _ := r.BigBlock(60)
			before := r.Watch.Peak()
			call := rig.Call(1, "eth_getBlockByNumber", block, true)
			for i := range 64 {
				c := r.Raw(rig.Dialer{From: rig.Attacker(i).From, RcvBuf: 4096})
				r.Must(c.Request(rig.Batch(call, call)), "batch")
			}
			r.For(r.Seconds(6, 20))
			r.AtMost("memory", float64(r.Watch.Peak()-before), replyMemory, "B")
		},
	}, &Case{
		Name: "http-pipelined-never-read", Family: replies, Needs: NeedChain, Flags: []string{replyBudget},
		Recipe: "64 HTTP/1.1 connections pipeline 8 reads of a full block and never read",
		Bound:  "memory grows by at most 640 MiB",
		Why:    "answers that nobody takes must not fill the memory",
		Run: func(r *Run) {
			block, _ := r.BigBlock(60)
			before := r.Watch.Peak()
			for i := range 64 {
				c := r.Raw(rig.Dialer{From: rig.Attacker(i).From, RcvBuf: 4096})
				for range 8 {
					r.Must(c.Request(rig.Call(1, "eth_getBlockByNumber", block, true)), "call")
				}
			}
			r.For(r.Seconds(6, 20))
			r.AtMost("memory", float64(r.Watch.Peak()-before), replyMemory, "B")
		},
	}, &Case{
		Name: "h2-streams-never-read", Family: replies, Needs: NeedChain | NeedH2, Flags: []string{replyBudget},
		Recipe: "100 streams of one HTTP/2 connection ask for a full block; the connection is never read",
		Bound:  "memory grows by at most 640 MiB",
		Why:    "one TCP connection must not hold a hundred answers",
		Run: func(r *Run) {
			block, _ := r.BigBlock(60)
			before := r.Watch.Peak()
			h := r.H2(rig.Dialer{From: rig.Attacker(0).From, RcvBuf: 4096})
			call := rig.Call(1, "eth_getBlockByNumber", block, true)
			for range 100 {
				id, err := h.Open(int64(len(call)), false)
				if err != nil || h.Data(id, call, true) != nil {
					break
				}
			}
			h.StopReading()
			r.For(r.Seconds(6, 20))
			r.AtMost("memory", float64(r.Watch.Peak()-before), replyMemory, "B")
		},
	}, &Case{
		Name: "block-trace", Number: 36, Family: replies, Quick: true, Needs: NeedChain, Flags: []string{replyBudget},
		Recipe: "one debug_traceBlockByNumber, 77 bytes, of a block with 50 million gas of steps",
		Bound:  "memory grows by at most 1.2 GiB; no answer over 256 MiB",
		Why:    "77 bytes must not buy five gigabytes",
		Run:    blockTrace,
	}, &Case{
		Name: "growing-traces", Family: replies, Flags: []string{replyBudget},
		Recipe: "four debug_traceCall that collect steps for 20 s",
		Bound:  "memory grows by at most 1.2 GiB",
		Why:    "what a trace collects counts before it is an answer",
		Run: func(r *Run) {
			t := r.flood(4, 4, func(int) []byte { return rig.GrowingTrace(1, "20s") })
			r.For(r.Seconds(8, 22))
			r.AtMost("memory", r.Grown(), 1228*mib, "B")
			r.Note("ended by a limit", float64(t.Get("large")+t.Get("limit")), "")
		},
	}, &Case{
		Name: "slow-readers-lock-out", Number: 49, Family: replies, Needs: NeedChain, Flags: []string{replyBudget},
		Recipe: "13 clients take a 12 MB reply at 2 KiB a second; others ask for the same block and read it",
		Bound:  "others are served",
		Why:    "a limit on bytes must not become the cheaper way to lock everybody out",
		Run: func(r *Run) {
			block, _ := r.BigBlock(60)
			call := rig.Call(1, "eth_getBlockByNumber", block, true)
			for i := range 26 {
				c := r.Raw(rig.Dialer{From: rig.Attacker(i % 13).From, RcvBuf: 4096})
				r.Must(c.Request(call), "call")
				go rig.Trickle(r.Ctx, c, 2048)
			}
			r.For(2 * time.Second)
			var t Tally
			for i := range 10 {
				t.Add(outcome(r.HTTP(rig.Attacker(200+i)).Send(r.Ctx, call)))
			}
			r.AtLeast("others served", float64(t.Get("served")), 10, "")
		},
	})
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
	raw := r.Raw(rig.Attacker(0))
	r.Must(raw.Request(rig.Call(1, "debug_traceBlockByNumber", fmt.Sprintf("0x%x", number))), "trace")
	status, _, body, err := raw.Response(r.Seconds(20, 60))
	if err == nil {
		r.Note("status", float64(status), "")
		r.Note("answer", float64(len(body)), "B")
		r.Check(bytes.Contains(body, []byte(`"error"`)) || len(body) <= 256*mib, "an answer of %s", FormatBytes(int64(len(body))))
	}
	r.AtMost("memory", float64(r.Watch.Peak()-before), 1228*mib, "B")
}
