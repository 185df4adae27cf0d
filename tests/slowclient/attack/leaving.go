// SPDX-License-Identifier: LGPL-3.0-or-later

package attack

import (
	"bytes"
	"time"

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
