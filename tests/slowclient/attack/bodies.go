// SPDX-License-Identifier: LGPL-3.0-or-later

package attack

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"
	"sync"
	"time"

	"rpcguard/tests/slowclient/rig"
)

const bodies = "bodies"

const (
	mib     = 1 << 20
	bodyMax = 5 << 20 // upstream's limit of an HTTP body
)

func init() {
	add(&Case{
		Name: "bodies-that-stall", Number: 3, Family: bodies, Quick: true,
		Recipe: "500 POSTs announce 5 MiB, send 64 bytes and fall silent",
		Bound:  "memory grows by at most 96 MiB; each is answered 408 within 15 s",
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
			for i := range 200 {
				r.Must(r.Raw(rig.Attacker(i%20)).Head("POST", bodyMax-1), "headers")
			}
			r.For(r.Seconds(3, 6))
			r.AtMost("memory", r.Grown(), 96*mib, "B")
		},
	}, &Case{
		Name: "streams-promise-bodies", Number: 5, Family: bodies, Quick: true, Needs: NeedH2,
		Recipe: "240 HTTP/2 streams of one connection send headers with Content-Length 5 MiB and no body",
		Bound:  "memory grows by at most 96 MiB",
		Why:    "one TCP connection must not cost a gigabyte",
		Run: func(r *Run) {
			h := r.H2(rig.Attacker(0))
			for range 240 {
				if _, err := h.Open(bodyMax-1, false); err != nil {
					break
				}
			}
			r.For(r.Seconds(3, 6))
			r.AtMost("memory", r.Grown(), 96*mib, "B")
		},
	}, &Case{
		Name: "bodies-beyond-budget", Number: 6, Family: bodies, Quick: true, Flags: []string{"rpc.body.budget=67108864"},
		Recipe: "200 bodies of 4.9 MiB at once, 64 MiB of budget where there is one",
		Bound:  "memory grows by at most 320 MiB; what does not fit reads 503 and -32005; nothing in use afterwards",
		Why:    "a burst of large uploads must be bounded, and those that are refused told so",
		Run:    burst,
	}, &Case{
		Name: "ws-fragments-slow", Number: 7, Family: bodies, Needs: NeedWS,
		Recipe: "40 WebSockets send 24 MiB each in 64 KiB fragments, 100 MB a second in all, and stop before the last",
		Bound:  "memory grows by at most 600 MiB; refused ones read close code 1013",
		Why:    "half-sent WebSocket messages must not add up to gigabytes",
		Run:    func(r *Run) { fragments(r, 40, 24*mib, 64<<10) },
	}, &Case{
		Name: "ws-fragments-tiny", Number: 7, Family: bodies, Needs: NeedWS,
		Recipe: "the same in fragments of 500 bytes, 8 MiB each",
		Bound:  "memory grows by at most 600 MiB",
		Why:    "small fragments are no way around a limit on bytes",
		Run:    func(r *Run) { fragments(r, 40, 8*mib, 500) },
	}, &Case{
		Name: "identifiers-and-nesting", Number: 27, Family: bodies, Quick: true,
		Recipe: "an id of 4 MiB; a million opening brackets; 2000 method names nobody knows",
		Bound:  "valid errors, an id over 1 KiB not echoed, memory bounded, no new metrics",
		Why:    "nonsense must cost no more than its own bytes",
		Run:    nonsense,
	}, &Case{
		Name: "engine-port-wrong-token", Number: 29, Family: bodies, Quick: true, Needs: NeedAuth, Engine: true,
		Recipe: "50 bodies of 5 MiB with a wrong token to the engine port",
		Bound:  "each 401; memory grows by at most 64 MiB",
		Why:    "who has no token must not cost memory",
		Run: func(r *Run) {
			c := rig.NewHTTP(r.Node.Auth, rig.Attacker(0))
			r.OnClose(c.Close)
			var t Tally
			body := rig.Call(1, "eth_subscribe", strings.Repeat("x", 4*mib))
			Parallel(r.Scale(20, 50), func(int) {
				status, _, _, err := c.Post(r.Ctx, body, "Authorization", "Bearer wrong")
				switch {
				case err == nil:
					t.Add(fmt.Sprint(status))
				case r.Node.Alive() && !strings.Contains(err.Error(), "refused"):
					t.Add("cut") // the server may close before the body is through
				}
			})
			r.AtLeast("refused 401", float64(t.Get("401")+t.Get("cut")), float64(r.Scale(20, 50)), "")
			r.AtMost("memory", r.Grown(), 64*mib, "B")
			r.MetricBecomes("rpc_body_inuse", 3*time.Second, "0", func(v float64) bool { return v <= 1<<18 })
		},
	}, &Case{
		Name: "collector-starved", Number: 31, Family: bodies, Needs: NeedH2,
		Recipe: "1000 slow HTTP/2 bodies, 63 KiB sent in all, of 5 MiB promised each",
		Bound:  "memory grows by at most 150 MiB",
		Why:    "memory that headers promise must not pace the garbage collector for everybody",
		Run: func(r *Run) {
			for i := range 10 {
				h := r.H2(rig.Attacker(i))
				for range 100 {
					id, err := h.Open(bodyMax-1, false)
					if err != nil || h.Data(id, make([]byte, 63), false) != nil {
						break
					}
				}
			}
			r.For(r.Seconds(4, 25))
			r.AtMost("memory", r.Grown(), 150*mib, "B")
		},
	}, &Case{
		Name: "batch-of-nothing", Number: 32, Family: bodies, Quick: true,
		Recipe: "8 POSTs of 4.9 MiB `[0,0,0,...]` at once",
		Bound:  "memory grows by at most 256 MiB, each answered",
		Why:    "5 MiB of a batch that is refused anyway must not cost 360 MiB each",
		Run: func(r *Run) {
			body := zeros(4900 << 10)
			var t Tally
			Parallel(8, func(i int) {
				status, _, b, err := r.HTTP(rig.Attacker(i)).Post(r.Ctx, body)
				if err == nil && len(b) > 0 {
					t.Add("answered")
				} else {
					t.Add(fmt.Sprint(status, err))
				}
			})
			r.AtLeast("answered", float64(t.Get("answered")), 8, "")
			r.AtMost("memory", r.Grown(), 256*mib, "B")
		},
	}, &Case{
		Name: "ws-batch-of-nothing", Number: 32, Family: bodies, Needs: NeedWS,
		Recipe: "two WebSocket messages of 30 MiB `[0,0,0,...]`",
		Bound:  "memory grows by at most 400 MiB",
		Why:    "30 MiB of nothing must not cost 1.6 GiB",
		Run: func(r *Run) {
			body := zeros(30 * mib)
			Parallel(2, func(i int) {
				ws := r.WS(rig.Attacker(i))
				if ws.Send(body) == nil {
					ws.Next(30 * time.Second)
				}
			})
			r.AtMost("memory", r.Grown(), 400*mib, "B")
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
				t.Add(outcome(r.HTTP(rig.Attacker(i%16)).Send(r.Ctx, body)))
			})
			r.Note("served", float64(t.Get("served")), "")
			r.AtMost("unanswered", float64(t.Get("error")), 0, "")
			r.AtMost("memory", r.Grown(), 1536*mib, "B")
		},
	}, &Case{
		Name: "ws-begun-then-pings", Number: 49, Family: bodies, Needs: NeedWS,
		Recipe: "8 WebSockets send 31.9 MiB of a message and then only ping; others post bodies of 4 MiB",
		Bound:  "others' bodies are served; the idle messages are ended within 65 s",
		Why:    "a limit on bytes must not become the cheaper way to lock everybody out",
		Run:    lockOut,
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
			for i := range 200 {
				c := r.Raw(rig.Attacker(i % 20))
				fmt.Fprintf(c, "POST /graphql HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{\"query\":%s", r.Node.HTTP, bodyMax-1, strings.Repeat(" ", 55))
			}
			r.For(r.Seconds(4, 8))
			r.AtMost("memory", r.Grown(), 96*mib, "B")
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
				status, _, _, err := r.HTTP(rig.Attacker(i)).Post(r.Ctx, buf.Bytes(), "Content-Encoding", "gzip")
				t.Add(fmt.Sprint(status, err != nil))
			})
			r.AtMost("memory", r.Grown(), 96*mib, "B")
		},
	}, &Case{
		Name: "budget-leaves-small-alone", Family: bodies, Needs: NeedGuard, Flags: []string{"rpc.body.budget=67108864"},
		Recipe: "the body budget kept full by slow uploads of 4 MiB; the polite client goes on",
		Bound:  "no polite call refused",
		Why:    "ordinary calls are never refused because of large ones",
		Run: func(r *Run) {
			stop := make(chan struct{})
			r.OnClose(func() { close(stop) })
			for i := range 30 {
				c := r.Raw(rig.Attacker(i))
				r.Must(c.Head("POST", 4*mib), "headers")
				go func() {
					chunk := make([]byte, 64<<10)
					for sent := 0; sent < 4*mib-len(chunk); sent += len(chunk) {
						select {
						case <-stop:
							return
						case <-time.After(50 * time.Millisecond):
						}
						if _, err := c.Write(chunk); err != nil {
							return
						}
					}
				}()
			}
			r.For(r.Seconds(5, 10))
		},
	})
}

// zeros is a batch of as many zeros as fit into n bytes.
func zeros(n int) []byte {
	return append(append([]byte("["), bytes.Repeat([]byte("0,"), n/2-1)...), "0]"...)
}

func stalledBodies(r *Run, n int, method string, length int64) {
	var conns []*rig.RawHTTP
	first := []byte(strings.Repeat(" ", 64))
	if length < 0 {
		first = append(append([]byte("10000\r\n"), bytes.Repeat([]byte(" "), 65536)...), "\r\n"...)
	} else {
		length -= 1
	}
	for i := range n {
		c := r.Raw(rig.Attacker(i % 20))
		r.Must(c.Head(method, length), "headers")
		if _, err := c.Write(first); err != nil {
			r.Must(err, "first bytes")
		}
		conns = append(conns, c)
	}
	begun := time.Now()
	r.For(r.Seconds(3, 5))
	allowed := float64(96 * mib)
	if length < 0 {
		allowed = 160 * mib
	}
	r.AtMost("memory", r.Grown(), allowed, "B")
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
	r.AtMost("until answered", time.Since(begun).Seconds(), 15, "s")
	r.MetricBecomes("rpc_body_inuse", 3*time.Second, "0", func(v float64) bool { return v <= 1<<18 })
}

func byteBody(r *Run) {
	c := r.Raw(rig.Attacker(0))
	body := rig.Call(1, "eth_blockNumber")
	r.Must(c.Head("POST", int64(len(body)*100)), "headers")
	begun := time.Now()
	go func() {
		for end := begun.Add(45 * time.Second); time.Now().Before(end) && r.Ctx.Err() == nil; {
			if _, err := c.Write([]byte(" ")); err != nil {
				return
			}
			rig.Sleep(r.Ctx, time.Second)
		}
	}()
	status, _, answer, err := c.Response(45 * time.Second)
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
	Parallel(n, func(i int) {
		status, header, b, err := r.HTTP(rig.Attacker(i%50)).Post(r.Ctx, body)
		switch {
		case err != nil:
			t.Add("error")
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
	r.AtMost("without an answer", float64(n-t.Get("served")-t.Get("503")), 0, "")
	r.AtMost("memory", r.Grown(), 320*mib, "B")
	r.MetricBecomes("rpc_body_inuse", 3*time.Second, "0", func(v float64) bool { return v <= 1<<18 })
}

func fragments(r *Run, n, total, frag int) {
	piece := rig.Frame(false, 0, bytes.Repeat([]byte("0,"), frag/2))
	first := rig.Frame(false, 1, append([]byte("["), bytes.Repeat([]byte("0,"), frag/2)...))
	// Small fragments go out several in one write.
	group := max(1, 64<<10/len(piece))
	many := bytes.Repeat(piece, group)
	var t Tally
	Parallel(n, func(i int) {
		ws, err := rig.DialWS(r.Ctx, r.Node.WS, rig.Attacker(i%20))
		if err != nil {
			t.Add("not connected")
			return
		}
		r.OnClose(ws.Abort)
		refused := make(chan int, 1)
		go func() {
			_, err := ws.Next(time.Minute)
			refused <- rig.CloseCode(err)
		}()
		ws.Net.SetWriteDeadline(time.Now().Add(40 * time.Second))
		_, err = ws.Net.Conn.Write(first)
		// All together send 100 MB a second: it is about bytes held, not about how
		// fast a loopback can be.
		pace := time.Duration(len(many)) * time.Second / (100e6 / time.Duration(n))
		for sent := 0; sent < total && err == nil; sent += frag * group {
			_, err = ws.Net.Conn.Write(many)
			r.For(pace)
		}
		wait := time.Second
		if err != nil {
			wait = 10 * time.Second
		}
		select {
		case code := <-refused:
			t.Add(fmt.Sprint(code))
		case <-time.After(wait):
			t.Add("pending")
		}
	})
	r.Note("closed with 1013", float64(t.Get("1013")), "")
	r.Note("still open", float64(t.Get("pending")), "")
	if r.Guarded() {
		r.Exactly("ended without a reason", n-t.Get("1013")-t.Get("pending"), 0)
	}
	r.AtMost("memory", r.Grown(), 600*mib, "B")
}

func nonsense(r *Run) {
	c := r.HTTP(rig.Attacker(0))
	names := func() int { m, _ := r.Node.Metrics(); return len(m) }
	before := names()

	id := fmt.Sprintf(`{"jsonrpc":"2.0","id":"%s","method":"eth_blockNumber"}`, strings.Repeat("x", 4*mib))
	status, _, body, err := c.Post(r.Ctx, []byte(id))
	if r.Check(err == nil, "4 MiB id: %v", err) {
		r.AtMost("answer to a 4 MiB id", float64(len(body)), 64<<10, "B")
		_ = status
	}
	_, _, body, err = c.Post(r.Ctx, bytes.Repeat([]byte("["), mib))
	if r.Check(err == nil, "a million brackets: %v", err) {
		r.Check(bytes.Contains(body, []byte(`"error"`)) || len(body) == 0, "a million brackets: %.100q", body)
	}
	Parallel(20, func(i int) {
		for k := range 100 {
			_, reply, err := c.Send(r.Ctx, rig.Call(1, fmt.Sprintf("nobody_knows%d", i*100+k)))
			if err != nil || reply.Code() != -32601 {
				r.Break("an unknown method is answered %v %v", reply, err)
				return
			}
		}
	})
	if before > 0 {
		r.AtMost("new metrics", float64(names()-before), 60, "")
	}
	r.AtMost("memory", r.Grown(), 200*mib, "B")
}

func lockOut(r *Run) {
	n := 8
	part := rig.Frame(false, 0, make([]byte, 64<<10))
	Parallel(n, func(i int) {
		ws, err := rig.DialWS(r.Ctx, r.Node.WS, rig.Attacker(i))
		if err != nil {
			return
		}
		r.OnClose(ws.Abort)
		ws.Net.SetWriteDeadline(time.Now().Add(20 * time.Second))
		if _, err := ws.Net.Conn.Write(rig.Frame(false, 1, []byte("["))); err != nil {
			return
		}
		for sent := 0; sent < 31*mib+900<<10; sent += 64 << 10 {
			if _, err := ws.Net.Conn.Write(part); err != nil {
				return
			}
		}
	})
	call := rig.Call(1, "eth_blockNumber")
	body := append(call, bytes.Repeat([]byte(" "), 4*mib-len(call))...)
	var t Tally
	for i := range r.Scale(10, 20) {
		status, reply, err := r.HTTP(rig.Attacker(100+i)).Send(r.Ctx, body)
		t.Add(outcome(status, reply, err))
		r.For(200 * time.Millisecond)
	}
	r.Check(t.Get("error") == 0, "outcomes: %s", &t)
	r.AtLeast("others' bodies served", float64(t.Get("served")), float64(r.Scale(9, 18)), "")
}
