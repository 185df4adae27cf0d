// SPDX-License-Identifier: LGPL-3.0-or-later

package attack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ethereum/go-ethereum/common/hexutil"

	"rpcguard/tests/slowclient/rig"
)

// What a node may use when those it works for have left: 40 calls a second of the
// polite client's and a block take a few percent of a processor.
const idleCPU = 0.5

// leaves waits until the node is at work for the attackers, lets it go on for a while,
// has them leave, and judges how busy the node is from a second later on.
func (r *Run) leaves(hold time.Duration, leave func()) {
	r.Working("calls being worked on")
	busy := r.Node.Load(r.Ctx, max(hold, 300*time.Millisecond))
	leave()
	r.IdleAfterLeaving(busy)
}

// IdleAfterLeaving judges how busy the node is a second after clients have left, for
// which it was so busy before. Where others use the machine a node that works as hard
// as it can gets little of it, so the bound is half of that at most.
func (r *Run) IdleAfterLeaving(busy float64) {
	if r.Node.Pid == 0 {
		r.notSeen("processors")
		return
	}
	r.For(time.Second)
	r.AtMost("processors after leaving", r.Node.Load(r.Ctx, 750*time.Millisecond), idleBound(busy), "")
}

// idleBound is what a node may use that used busy processors before; the polite
// client's calls cost a tenth.
func idleBound(busy float64) float64 { return max(0.12, min(idleCPU, busy/2)) }

func init() {
	const idle, why = "the processor is idle 1 s later", "nobody waits for the answer any more"
	add(&Case{
		Name: "ws-client-leaves", Number: 11, Family: calls, Quick: true, Needs: NeedWS,
		Recipe: "a slow call over WebSocket; the client leaves while it runs",
		Bound:  idle, Why: why,
		Run: func(r *Run) {
			ws := r.WS(r.Attacker(0))
			r.Must(ws.Send(rig.SlowCall(1)), "slow call")
			r.leaves(r.Seconds(1, 2), ws.Abort)
		},
	}, &Case{
		Name: "http-client-leaves", Number: 11, Family: calls,
		Recipe: "the same over HTTP",
		Bound:  idle, Why: why,
		Run: func(r *Run) {
			c := r.Raw(r.Attacker(0))
			r.Must(c.Request(rig.SlowCall(1)), "slow call")
			r.leaves(r.Seconds(1, 2), func() { c.Close() })
		},
	}, &Case{
		Name: "h2-client-leaves", Family: calls, Needs: NeedH2,
		Recipe: "slow calls over ten streams of an HTTP/2 connection that leaves while they run",
		Bound:  idle, Why: why,
		Run: func(r *Run) {
			h := r.H2(r.Attacker(0))
			for range 10 {
				call := rig.SlowCall(1)
				id, err := h.Open(int64(len(call)), false)
				r.Must(err, "stream")
				r.Must(h.Data(id, call, true), "call")
			}
			r.leaves(r.Seconds(1, 2), h.Close)
		},
	}, &Case{
		Name: "trace-after-leaving", Number: 37, Family: calls, Quick: true,
		Recipe: "debug_traceCall that collects steps, with timeout 1h, over HTTP; the client leaves after half a second of it",
		Bound:  idle + "; memory grows by at most 1 GiB",
		Why:    "a trace that nobody waits for must stop, and its time is not the client's to choose",
		Run: func(r *Run) {
			c := r.Raw(r.Attacker(0))
			r.Must(c.Request(rig.GrowingTrace(1, "1h")), "trace")
			r.leaves(500*time.Millisecond, func() { c.Close() })
			r.MemoryAtMost(1024 * mib)
		},
	}, &Case{
		Name: "trace-after-leaving-ws", Number: 37, Family: calls, Needs: NeedWS,
		Recipe: "the same over WebSocket, with a tracer that keeps nothing",
		Bound:  idle, Why: "a trace that nobody waits for must stop",
		Run: func(r *Run) {
			ws := r.WS(r.Attacker(0))
			r.Must(ws.Send(rig.SlowTrace(1, "1h")), "trace")
			r.leaves(500*time.Millisecond, ws.Abort)
		},
	}, &Case{
		Name: "tracers-without-a-stop", Family: calls, Quick: true,
		Recipe: "debug_traceCall with keccak256PreimageTracer, alone and inside a muxTracer, beyond a time-out of 200 ms; and with a time-out of 1h by clients that leave",
		Bound:  "each that stays is answered; the node lives",
		Why:    "one small request must not end the node",
		Run: func(r *Run) {
			plain := rig.Call(1, "debug_traceCall", map[string]any{}, "latest", map[string]any{"tracer": "keccak256PreimageTracer"})
			if _, _, body, err := r.HTTP(r.Attacker(0)).Post(r.Ctx, plain); err == nil && bytes.Contains(body, []byte(`"error"`)) {
				r.Skip("no such tracer")
				return
			}
			for i, t := range []struct{ tracer, config string }{
				{"keccak256PreimageTracer", "{}"},
				{"muxTracer", `{"keccak256PreimageTracer":{},"callTracer":{}}`},
			} {
				c := r.Raw(r.Attacker(2 * i))
				r.Must(c.Request(rig.TraceWith(1, t.tracer, t.config, "1h")), "trace")
				r.Working("a trace")
				c.Close()
				c = r.Raw(r.Attacker(2*i + 1))
				r.Must(c.Request(rig.TraceWith(2, t.tracer, t.config, "200ms")), "trace")
				status, _, body, err := c.Response(r.Seconds(10, 20))
				r.Check(err == nil && len(body) > 0, "%s: status %d, %d bytes, %v", t.tracer, status, len(body), err)
				c.Close()
			}
		},
	}, &Case{
		Name: "simulated-gap-after-leaving", Family: calls, Flags: []string{evm4s},
		Recipe: "eth_simulateV1 with a gap of 250 blocks, each of which calls two contracts of the system that loop for 30M gas; the client leaves after a second of it, another stays",
		Bound:  idle + "; the other is answered within 10 s",
		Why:    "a simulation is over with its client and its time, whatever its blocks are made of",
		Run:    simulatedGap,
	}, &Case{
		Name: "access-list-after-leaving", Family: calls, Flags: []string{"rpc.gascap=0", evm4s},
		Recipe: "on a node without a cap on gas, eth_createAccessList of a loop, and of a contract that touches another slot each time; the clients leave after a second of it, another stays",
		Bound:  idle + "; the other is answered within 10 s",
		Why:    "a list that is never complete must not be worked on for good",
		Run:    endlessAccessLists,
	}, &Case{
		Name: "javascript-made-after-leaving", Family: calls,
		Recipe: "debug_traceCall with JavaScript tracers that loop while they are made; the clients leave after a second of it. Then one whose function calls itself",
		Bound:  idle + "; the node lives",
		Why:    "a program that a client sends must end before it has begun, too",
		Run: func(r *Run) {
			const rest = `fault:function(){},result:function(){}}`
			var clients []*rig.RawHTTP
			for i, js := range []string{`(function(){for(;;);})()`, `{setup:function(){for(;;);},` + rest, `{step:function(){for(;;);},` + rest} {
				c := r.Raw(r.Attacker(i))
				r.Must(c.Request(rig.TraceWith(1, js, "{}", "1h")), "trace")
				clients = append(clients, c)
			}
			r.leaves(r.Seconds(1, 2), func() {
				for _, c := range clients {
					c.Close()
				}
			})
			// Ended by its depth here; on stock it goes on until the stack is full.
			status, _, body, err := r.HTTP(r.Attacker(4)).Post(r.Ctx, rig.TraceWith(1, `{setup:function f(){[0].forEach(f)},`+rest, "{}", "1h"))
			r.Check(err == nil && len(body) > 0, "recursion: status %d, %d bytes, %v", status, len(body), err)
		},
	}, &Case{
		Name: "trace-for-an-hour", Number: 37, Family: calls, Flags: []string{"rpc.admission.heavy-timeout=3s"},
		Recipe: "debug_traceCall with timeout 1h whose client stays; the cap is set to 3 s where there is one",
		Bound:  "the processor is idle within 10 s",
		Why:    "how long a trace may run is the operator's to choose",
		Run: func(r *Run) {
			c := r.Raw(r.Attacker(0))
			r.Must(c.Request(rig.SlowTrace(1, "1h")), "trace")
			r.Working("a trace")
			begun := time.Now()
			busy := r.Node.Load(r.Ctx, 500*time.Millisecond)
			status, _, body, err := c.Response(r.Seconds(10, 20))
			if r.Check(err == nil, "no answer within %v: %v", r.Seconds(10, 20), err) {
				r.Note("status", float64(status), "")
				r.AtMost("answered after", time.Since(begun).Seconds(), 10, "s")
				r.Check(len(body) > 0, "an empty answer")
			}
			r.IdleAfterLeaving(busy)
		},
	}, &Case{
		Name: "ws-batch-leaves", Number: 41, Family: calls, Quick: true, Needs: NeedWS,
		Recipe: "a WebSocket batch of 128 KB of slow calls; the client leaves as soon as they run",
		Bound:  idle, Why: "what was not begun when the client left must not begin",
		Run: func(r *Run) {
			ws := r.WS(r.Attacker(0))
			var batch [][]byte
			for i := range 600 {
				batch = append(batch, rig.SlowCall(i))
			}
			r.Must(ws.Send(rig.Batch(batch...)), "batch")
			r.leaves(0, ws.Abort)
		},
	})
}

// simulatedGap has blocks simulated that hold no calls, in which upstream looks neither at
// the time nor at the client.
func simulatedGap(r *Run) {
	const loop = `{"code":"0x5b620100005f20505f56"}` // hashes 64 KiB again and again
	_, head, err := r.HTTP(r.Attacker(0)).Send(r.Ctx, rig.Call(1, "eth_getBlockByNumber", "latest", false))
	r.Must(err, "head")
	var block struct{ Number hexutil.Uint64 }
	r.Must(json.Unmarshal(head.Result, &block), "head")
	gap := rig.Call(1, "eth_simulateV1", rig.Raw(fmt.Sprintf(`{"blockStateCalls":[{"stateOverrides":{"0x000f3df6d732807ef1319fb7b8bb8522d0beac02":%s,`+
		`"0x0000f90827f1c53a10cb7a02335b175320002935":%s}},{"blockOverrides":{"number":"0x%x"}}]}`, loop, loop, uint64(block.Number)+250)), block.Number.String())
	c := r.Raw(r.Attacker(0))
	r.Must(c.Request(gap), "simulation")
	r.leaves(r.Seconds(1, 2), func() { c.Close() })
	r.answeredWithin(10*time.Second, r.Attacker(1), gap)
}

// endlessAccessLists has lists made that are never complete.
func endlessAccessLists(r *Run) {
	list := func(code, other string) []byte {
		return rig.Call(1, "eth_createAccessList", rig.Raw(`{"to":"0x00000000000000000000000000000000000000cc"}`), "latest",
			rig.Raw(`{"0x00000000000000000000000000000000000000cc":{"code":"`+code+`"},"0x00000000000000000000000000000000000000dd":{"code":"`+other+`"}}`))
	}
	loop := list("0x5b600056", "0x")
	fresh := list("0x5f5f5f5f5f60dd5af1", "0x5a5400") // calls another, which reads a slot named after the gas that is left
	var clients []*rig.RawHTTP
	for i, body := range [][]byte{loop, fresh} {
		c := r.Raw(r.Attacker(i))
		r.Must(c.Request(body), "access list")
		clients = append(clients, c)
	}
	r.leaves(r.Seconds(1, 2), func() {
		for _, c := range clients {
			c.Close()
		}
	})
	r.answeredWithin(10*time.Second, r.Attacker(2), loop)
}

// answeredWithin judges whether a call is answered in time, if only with an error.
func (r *Run) answeredWithin(most time.Duration, from rig.Dialer, body []byte) {
	c := r.Raw(from)
	begun := time.Now()
	r.Must(c.Request(body), "call")
	status, _, reply, err := c.Response(r.Seconds(12, 20))
	if r.Check(err == nil && len(reply) > 0, "no answer: status %d, %v", status, err) {
		r.AtMost("answered after", time.Since(begun).Seconds(), most.Seconds(), "s")
	}
	c.Close()
}
