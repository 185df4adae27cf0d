// SPDX-License-Identifier: LGPL-3.0-or-later

package attack

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"rpcguard/tests/slowclient/rig"
)

const bodies = "bodies"

const (
	mib     = 1 << 20
	bodyMax = 5 << 20 // upstream's limit of an HTTP body

	// What memory may grow by while the budget for request bytes is fought for: two
	// and a half times that budget (see baseFlags), and 64 MiB for the node itself.
	bodyMemory = 64*mib*5/2 + 64*mib
)

func init() {
	add(&Case{
		Name: "bodies-that-stall", Number: 3, Family: bodies, Quick: true,
		Recipe: "500 POSTs announce 5 MiB, send 64 bytes and fall silent",
		Bound:  "memory grows by at most 96 MiB; each is answered 408 within 5 s of the idle limit",
		Why:    "unfinished uploads must not pin their full size for half a minute",
		Run:    func(r *Run) { stalledBodies(r, r.Scale(200, 500), "POST", bodyMax) },
	}, &Case{
		Name: "body-by-the-byte", Number: 4, Family: bodies,
		Recipe: "a body sent at one byte a second",
		Bound:  "ends with status 408 and a JSON-RPC error, within 30 s",
		Why:    "a client that is cut off must learn why",
		Run:    byteBody,
	}, &Case{
		Name: "headers-promise-bodies", Number: 5, Family: bodies, Quick: true,
		Recipe: "200 connections send headers with Content-Length 5 MiB and no body",
		Bound:  "memory grows by at most 96 MiB",
		Why:    "the server must not allocate what a header promises",
		Run: func(r *Run) {
			before := r.Node.Goroutines()
			for i := range 200 {
				r.Must(r.Raw(r.Attacker(i%20)).Head("POST", bodyMax-1), "headers")
			}
			r.Goroutines("requests begun", before, 100)
			r.For(r.Seconds(1, 6))
			r.MemoryAtMost(96 * mib)
		},
	}, &Case{
		Name: "streams-promise-bodies", Number: 5, Family: bodies, Quick: true, Needs: NeedH2,
		Recipe: "240 HTTP/2 streams of one connection send headers with Content-Length 5 MiB and no body",
		Bound:  "memory grows by at most 96 MiB",
		Why:    "one TCP connection must not cost a gigabyte",
		Run: func(r *Run) {
			before := r.Node.Goroutines()
			h := r.H2(r.Attacker(0))
			for range 240 {
				if _, err := h.Open(bodyMax-1, false); err != nil {
					break
				}
			}
			// Those over the server's limit of streams are refused at once.
			r.Goroutines("streams begun", before, min(240, max(4, h.MaxStreams()))/4)
			r.For(r.Seconds(1, 6))
			r.MemoryAtMost(96 * mib)
		},
	}, &Case{
		Name: "bodies-beyond-budget", Number: 6, Family: bodies, Quick: true,
		Recipe: "200 bodies of 4.9 MiB at once, 64 MiB of budget where there is one",
		Bound:  "memory grows by at most 224 MiB; of what does not fit 99 % read 503 and -32005; nothing in use afterwards",
		Why:    "a burst of large uploads must be bounded, and those that are refused told so",
		Run:    burst,
	}, &Case{
		Name: "ws-fragments-slow", Number: 7, Family: bodies, Needs: NeedWS,
		Recipe: "40 WebSockets send 30 MiB each in 64 KiB fragments, 100 MB a second in all, and stop before the last",
		Bound:  "memory grows by at most 224 MiB; refused ones read close code 1013",
		Why:    "half-sent WebSocket messages must not add up to gigabytes",
		Run:    func(r *Run) { fragments(r, 40, 30*mib, 64<<10, 100e6) },
	}, &Case{
		Name: "ws-fragments-tiny", Number: 7, Family: bodies, Needs: NeedWS,
		Recipe: "the same in fragments of 500 bytes, 8 MiB each",
		Bound:  "memory grows by at most 224 MiB; refused ones read close code 1013",
		Why:    "small fragments are no way around a limit on bytes",
		Run:    func(r *Run) { fragments(r, 40, 8*mib, 500, 100e6) },
	}, &Case{
		Name: "ws-fragments-fast", Number: 7, Family: bodies, Needs: NeedWS,
		Recipe: "40 WebSockets send 30 MiB each in 64 KiB fragments, as fast as they are taken",
		Bound:  "memory grows by at most 224 MiB; refused ones read close code 1013",
		Why:    "nor must they when they come at full speed",
		Run:    func(r *Run) { fragments(r, 40, 30*mib, 64<<10, 0) },
	}, &Case{
		Name: "identifiers-and-nesting", Number: 27, Family: bodies, Quick: true,
		Recipe: "an id of 4 MiB; a million opening brackets; method names nobody knows (quick: 2000, full: 10000)",
		Bound:  "valid errors, an id over 1 KiB not echoed, memory bounded, no new metrics",
		Why:    "nonsense must cost no more than its own bytes",
		Run:    nonsense,
	}, &Case{
		Name: "engine-port-wrong-token", Number: 29, Family: bodies, Quick: true, Needs: NeedAuth, Engine: true,
		Recipe: "50 calls of eth_subscribe with 5 MiB of body and a wrong token to the engine port",
		Bound:  "each reads 401; memory grows by at most 64 MiB; no byte is charged to the budget of bodies",
		Why:    "who has no token must not cost memory",
		Run:    wrongToken,
	}, &Case{
		Name: "collector-starved", Number: 31, Family: bodies, Needs: NeedH2,
		Recipe: "1000 slow HTTP/2 bodies, 63 KiB sent in all, of 5 MiB promised each; ordinary reads beside them, in pairs with and without (full: 9)",
		Bound:  "memory grows by at most 224 MiB; processor time a read as without the attack (95 % interval of the ratio)",
		Why:    "memory that headers promise must not pace the garbage collector for everybody",
		Run:    collector,
	}, &Case{
		Name: "batch-of-nothing", Number: 32, Family: bodies, Quick: true,
		Recipe: "8 POSTs of 4.9 MiB `[0,0,0,...]` at once",
		Bound:  "memory grows by at most twice the bytes sent, each answered",
		Why:    "5 MiB of a batch that is refused anyway must not cost 360 MiB each",
		Run: func(r *Run) {
			body := zeros(4900 << 10)
			var t Tally
			Parallel(8, func(i int) {
				status, _, b, err := r.HTTP(r.Attacker(i)).Post(r.Ctx, body)
				if err == nil && len(b) > 0 {
					t.Add("answered")
				} else {
					t.Add(fmt.Sprint(status, err))
				}
			})
			r.Arrived("batches answered", t.Get("answered"), 1)
			r.AtLeast("answered", float64(t.Get("answered")), 8, "")
			r.MemoryAtMost(float64(2 * 8 * len(body)))
		},
	}, &Case{
		Name: "ws-batch-of-nothing", Number: 32, Family: bodies, Needs: NeedWS,
		Recipe: "two WebSocket messages of 30 MiB `[0,0,0,...]`",
		Bound:  "memory grows by at most 2.5 times the bytes sent and 64 MiB; answered, or refused with 1013",
		Why:    "30 MiB of nothing must not cost 1.6 GiB",
		Run: func(r *Run) {
			body := zeros(30 * mib)
			var t Tally
			Parallel(2, func(i int) {
				ws := r.WS(r.Attacker(i))
				// Clients of WebSockets read while they write: who is refused in the middle
				// reads why before the rest is in.
				read := make(chan error, 1)
				go func() {
					_, err := ws.Next(30 * time.Second)
					read <- err
				}()
				ws.Send(body)
				err := <-read
				switch code := rig.CloseCode(err); {
				case err == nil:
					t.Add("answered")
				case code != 0:
					t.Add(fmt.Sprint(code))
				default:
					t.Add("cut")
				}
			})
			r.Arrived("messages answered or refused", t.Get("answered")+t.Get("1013"), 1)
			r.Exactly("neither answered nor refused", 2-t.Get("answered")-t.Get("1013"), 0)
			r.MemoryAtMost(float64(2*len(body))*5/2 + 64*mib)
		},
	}, &Case{
		Name: "state-overrides", Number: 50, Family: bodies,
		Recipe: "256 eth_calls at once, each with 4.9 MiB of state overrides",
		Bound:  "memory grows by at most 1.5 GiB, each answered",
		Why:    "calls that bring their own state are bounded in number and bytes",
		Run: func(r *Run) {
			code := strings.Repeat("00", 2400<<10)
			body := rig.Call(1, "eth_call", rig.Raw(`{"to":"0x00000000000000000000000000000000000000cc"}`), "latest",
				rig.Raw(`{"0x00000000000000000000000000000000000000dd":{"code":"0x`+code+`"}}`))
			var t Tally
			Parallel(r.Scale(64, 256), func(i int) {
				t.Add(outcome(r.HTTP(r.Attacker(i%16)).Send(r.Ctx, body)))
			})
			r.Arrived("calls answered", r.Scale(64, 256)-t.Get("error"), 1)
			r.Note("served", float64(t.Get("served")), "")
			r.AtMost("unanswered", float64(t.Get("error")), 0, "")
			r.MemoryAtMost(1536 * mib)
		},
	}, &Case{
		Name: "ws-begun-then-pings", Number: 49, Family: bodies, Needs: NeedWS,
		Recipe: "2, then 8 WebSockets send 31.9 MiB of a message and then only ping; others post bodies of 4 MiB",
		Bound:  "others' bodies are served; the idle messages are ended within 65 s",
		Why:    "a limit on bytes must not become the cheaper way to lock everybody out",
		Run:    lockOut,
	}, &Case{
		Name: "ws-pings-inside", Number: 48, Family: bodies, Needs: NeedWS,
		Recipe: "30 WebSockets send 64 KiB of a message and then 100 pings a second each",
		Bound:  "all ended within the idle time and 5 s",
		Why:    "whoever pings fast enough must not keep its message open for good",
		Run:    pingsInside,
	}, &Case{
		Name: "bodies-chunked", Family: bodies,
		Recipe: "500 chunked POSTs send one chunk of 64 KiB and fall silent",
		Bound:  "memory grows by at most 160 MiB; 408 within 15 s",
		Why:    "leaving the Content-Length out is no way around",
		Run:    func(r *Run) { stalledBodies(r, r.Scale(200, 500), "POST", -1) },
	}, &Case{
		Name: "bodies-options", Family: bodies,
		Recipe: "500 OPTIONS with Content-Length 5 MiB, 64 bytes sent",
		Bound:  "memory grows by at most 96 MiB",
		Why:    "every method that reads a body is bounded, not only POST",
		Run:    func(r *Run) { stalledBodies(r, r.Scale(200, 500), "OPTIONS", bodyMax) },
	}, &Case{
		Name: "bodies-patch", Family: bodies,
		Recipe: "500 PATCH with Content-Length 5 MiB, 64 bytes sent",
		Bound:  "memory grows by at most 96 MiB",
		Why:    "every method that reads a body is bounded, not only POST",
		Run:    func(r *Run) { stalledBodies(r, r.Scale(200, 500), "PATCH", bodyMax) },
	}, &Case{
		Name: "graphql-bodies", Family: bodies, Number: 28, Needs: NeedGraphQL,
		Recipe: "200 GraphQL requests announce 5 MiB and send 64 bytes",
		Bound:  "memory grows by at most 96 MiB; ended within 15 s",
		Why:    "GraphQL is the same door",
		Run: func(r *Run) {
			before := r.Node.Goroutines()
			conns := make([]*rig.RawHTTP, 200)
			for i := range conns {
				c := r.Raw(r.Attacker(i % 20))
				conns[i] = c
				fmt.Fprintf(c, "POST /graphql HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{\"query\":%s", r.Node.HTTP, bodyMax-1, strings.Repeat(" ", 55))
			}
			r.Goroutines("requests begun", before, 100)
			begun := time.Now()
			r.For(time.Second)
			r.MemoryAtMost(96 * mib)
			var ended atomic.Int64
			Parallel(len(conns), func(i int) {
				if _, _, _, err := conns[i].Response(r.idleLimit() + 5*time.Second); !timedOut(err) {
					ended.Add(1)
				}
			})
			r.Exactly("ended", int(ended.Load()), len(conns))
			r.Note("after", time.Since(begun).Seconds(), "s")
		},
	}, &Case{
		Name: "gzip-body", Family: bodies,
		Recipe: "20 POSTs with Content-Encoding gzip that unpack to 50 MiB",
		Bound:  "memory grows by at most 96 MiB, an error each",
		Why:    "a compressed body must not be a bomb",
		Run: func(r *Run) {
			var buf bytes.Buffer
			z := gzip.NewWriter(&buf)
			z.Write(zeros(50 * mib))
			z.Close()
			var t Tally
			Parallel(20, func(i int) {
				status, _, b, err := r.HTTP(r.Attacker(i)).Post(r.Ctx, buf.Bytes(), "Content-Encoding", "gzip")
				if err == nil && (status >= 400 || bytes.Contains(b, []byte(`"error"`))) {
					t.Add("refused")
				} else {
					t.Add(fmt.Sprint(status, err))
				}
			})
			r.Arrived("requests refused", t.Get("refused"), 1)
			r.Exactly("refused", t.Get("refused"), 20)
			r.MemoryAtMost(96 * mib)
		},
	}, &Case{
		Name: "budget-leaves-small-alone", Family: bodies, Needs: NeedGuard,
		Recipe: "the body budget kept full by slow uploads of 4 MiB; the polite client goes on",
		Bound:  "no polite call refused",
		Why:    "ordinary calls are never refused because of large ones",
		Run:    fullBudget,
	}, &Case{
		Name: "uploads-read-the-refusal", Family: bodies, Needs: NeedGuard, NoPolite: true,
		Flags:  []string{"rpc.body.ws-limit=5242880", "rpc.body.budget=5300000"},
		Recipe: "the budget is full; 200 clients upload 4 MiB at full speed and read the answer only then",
		Bound:  "99 % read 503 and -32005",
		Why:    "an answer that is lost to a reset tells a client nothing",
		Run:    readRefusals,
	})
}

// zeros is a batch of as many zeros as fit into n bytes.
func zeros(n int) []byte {
	return append(append([]byte("["), bytes.Repeat([]byte("0,"), n/2-1)...), "0]"...)
}

// idleLimit is how long a request of a guarded node may pause.
func (r *Run) idleLimit() time.Duration { return r.Seconds(4, 10) }

func timedOut(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

func stalledBodies(r *Run, n int, method string, length int64) {
	first := []byte(strings.Repeat(" ", 64))
	if length < 0 {
		first = append(append([]byte("10000\r\n"), bytes.Repeat([]byte(" "), 65536)...), "\r\n"...)
	} else {
		length -= 1
	}
	before := r.Node.Goroutines()
	conns := make([]*rig.RawHTTP, n)
	for i := range n {
		c := r.Raw(r.Attacker(i % 20))
		r.Must(c.Head(method, length), "headers")
		if _, err := c.Write(first); err != nil {
			r.Must(err, "first bytes")
		}
		conns[i] = c
	}
	begun := time.Now()
	r.Goroutines("bodies begun", before, n/2)
	r.For(r.Seconds(1, 5))
	allowed := float64(96 * mib)
	if length < 0 {
		allowed = 160 * mib
	}
	r.MemoryAtMost(allowed)
	if !r.Guarded() && r.Quick {
		return // stock waits for 30 s and says nothing
	}
	// All are waited for at once; the last must have its answer in time.
	var t Tally
	Parallel(n, func(i int) {
		status, _, body, err := conns[i].Response(40 * time.Second)
		switch {
		case err != nil:
			t.Add("no answer")
		case status == 408 && bytes.Contains(body, []byte(`"error"`)):
			t.Add("408")
		default:
			t.Add(fmt.Sprint(status))
		}
	})
	r.AtLeast("answered 408", float64(t.Get("408")), float64(n), "")
	r.AtMost("until answered", time.Since(begun).Seconds(), (r.idleLimit() + 5*time.Second).Seconds(), "s")
	r.MetricBecomes("rpc_body_inuse", 3*time.Second, "0", func(v float64) bool { return v <= 1<<18 })
}

func byteBody(r *Run) {
	c := r.Raw(r.Attacker(0))
	body := rig.Call(1, "eth_blockNumber")
	r.Must(c.Head("POST", int64(len(body)*100)), "headers")
	begun := time.Now()
	var sent atomic.Int64
	go func() {
		for end := begun.Add(45 * time.Second); time.Now().Before(end) && r.Ctx.Err() == nil; {
			if _, err := c.Write([]byte(" ")); err != nil {
				return
			}
			sent.Add(1)
			rig.Sleep(r.Ctx, time.Second)
		}
	}()
	status, _, answer, err := c.Response(45 * time.Second)
	r.Arrived("bytes sent", int(sent.Load()), 5)
	r.Note("after", time.Since(begun).Seconds(), "s")
	if r.Check(err == nil, "no answer: %v", err) {
		r.Exactly("status", status, 408)
		r.Check(bytes.Contains(answer, []byte(`"error"`)), "its answer is %q, no JSON-RPC error", answer)
		r.AtMost("until answered", time.Since(begun).Seconds(), 30.5, "s")
	}
}

func burst(r *Run) {
	n := r.Scale(100, 200)
	call := rig.Call(1, "eth_blockNumber")
	body := append(call, bytes.Repeat([]byte(" "), 4900<<10-len(call))...)
	var t Tally
	var wrong sync.Once
	var lost atomic.Pointer[error]
	Parallel(n, func(i int) {
		status, header, b, err := r.HTTP(r.Attacker(i%50)).Post(r.Ctx, body)
		switch {
		case err != nil:
			t.Add("error")
			lost.CompareAndSwap(nil, &err)
		case status == 200:
			t.Add("served")
		case status == 503:
			t.Add("503")
			if !bytes.Contains(b, []byte(`"code":-32005`)) || header.Get("Retry-After") == "" {
				wrong.Do(func() { r.Break("refused with %q, Retry-After %q", b, header.Get("Retry-After")) })
			}
		default:
			t.Add(fmt.Sprint(status))
		}
	})
	r.Note("served", float64(t.Get("served")), "")
	r.Note("refused", float64(t.Get("503")), "")
	answered := t.Get("served") + t.Get("503")
	r.Arrived("bodies answered", answered, n/2)
	if !r.AtLeast("read their answer", float64(answered)/float64(n), 0.99, "") && lost.Load() != nil {
		r.Break("first lost: %v", *lost.Load())
	}
	r.MemoryAtMost(bodyMemory)
	r.MetricBecomes("rpc_body_inuse", 3*time.Second, "0", func(v float64) bool { return v <= 1<<18 })
}
