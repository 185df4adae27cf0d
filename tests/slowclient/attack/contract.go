// SPDX-License-Identifier: LGPL-3.0-or-later

package attack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"time"

	"rpcguard/tests/slowclient/rig"
)

const contract = "contract"

const oneAtATime = "rpc.admission.concurrency=1"

func init() {
	add(&Case{
		Name: "refusal-exact", Family: contract, Quick: true, Needs: NeedGuard | NeedWS, NoPolite: true,
		Flags:  []string{oneAtATime, "rpc.admission.cpu=1", "rpc.admission.queue=0"},
		Recipe: "a slow call holds the only place; calls over HTTP, in a batch, over WebSocket",
		Bound:  `exactly {"code":-32013,"message":"Request queue is full"}, no data; HTTP 429 alone, 200 in a batch; the connection kept; light calls served`,
		Why:    "clients decide by the code and the status, so both must be exact",
		Run:    refusal,
	}, &Case{
		Name: "refusal-fitted", Family: contract, Needs: NeedGuard, NoPolite: true,
		Flags:  []string{oneAtATime, "rpc.admission.cpu=1", "rpc.admission.queue=0", "rpc.admission.status=503", "rpc.admission.code=-32005"},
		Recipe: "the same with --rpc.admission.status 503 and --rpc.admission.code -32005",
		Bound:  "status 503, code -32005",
		Why:    "an operator can fit refusals to the clients in front of the node",
		Run: func(r *Run) {
			holdPlace(r)
			status, reply, err := r.HTTP(r.Attacker(1)).Send(r.Ctx, rig.Call(7, "eth_gasPrice"))
			r.Must(err, "call")
			r.Arrived("calls answered", 1, 1)
			r.Exactly("status", status, 503)
			r.Exactly("code", reply.Code(), -32005)
		},
	}, &Case{
		Name: "dry-run", Family: contract, Needs: NeedGuard | NeedMetrics, NoPolite: true,
		Flags:  []string{oneAtATime, "rpc.admission.cpu=1", "rpc.admission.queue=0", "rpc.guard.dryrun"},
		Recipe: "the same with --rpc.guard.dryrun",
		Bound:  "served, and counted as refused",
		Why:    "an operator can see what a limit would do before setting it",
		Run: func(r *Run) {
			before := r.BooksNow()
			holdPlace(r)
			var t Tally
			t.Add(outcome(r.HTTP(r.Attacker(1)).Send(r.Ctx, rig.Call(7, "eth_gasPrice"))))
			r.Arrived("calls answered", 1-t.Get("error"), 1)
			r.Exactly("served", t.Get("served"), 1)
			var refused float64
			rig.Until(r.Ctx, 4*time.Second, func() bool { refused = r.Books().Sub(before).Refused; return refused >= 1 })
			r.AtLeast("counted as refused", refused, 1, "")
		},
	}, &Case{
		Name: "guard-off-is-stock", Family: contract, Needs: NeedGuard | NeedWS, Flags: []string{"rpc.guard=false"},
		Recipe: "a round of calls, errors, batches and odd requests to stock geth of the same release (--stock), to ours with --rpc.guard=false and to ours with the guard on",
		Bound:  "the same bytes from all of them, ids and what the chain decides apart; on, a body over the limit is refused in JSON",
		Why:    "off means off, and on changes nothing for those who ask for little",
		Run:    compareOff,
	}, &Case{
		Name: "ipc-half-close", Family: contract, Needs: NeedIPC,
		Recipe: "a call over IPC, then the writing side is closed, as `echo ... | nc -U` does",
		Bound:  "the answer comes",
		Why:    "scripts that pipe a call into the socket must go on working",
		Run: func(r *Run) {
			c := r.IPC()
			c.Write(rig.Call(1, "eth_chainId"))
			if u, ok := c.Conn.(*net.UnixConn); ok {
				u.CloseWrite()
			}
			reply, err := c.Next(5 * time.Second)
			r.Must(err, "answer after closing one side")
			r.Arrived("calls answered", 1, 1)
			r.Check(reply.Err == nil, "%v", reply.Err)
		},
	}, &Case{
		Name: "ipc-not-cut", Family: contract, Needs: NeedIPC, Flags: []string{"rpc.admission.cpu=1", "rpc.admission.queue=0"},
		Recipe: "20 slow calls and a batch of 100 over IPC",
		Bound:  "none refused",
		Why:    "the operator's own tools are trusted",
		Run: func(r *Run) {
			c := r.IPC()
			for i := range 20 {
				c.Write(rig.SlowTrace(i, "1s"))
			}
			var batch [][]byte
			for i := range 100 {
				batch = append(batch, rig.Call(1000+i, "eth_gasPrice"))
			}
			c.Write(rig.Batch(batch...))
			c.SetReadDeadline(time.Now().Add(40 * time.Second))
			dec := json.NewDecoder(c)
			for got := 0; got < 21; got++ {
				var raw json.RawMessage
				if err := dec.Decode(&raw); err != nil {
					r.Must(err, fmt.Sprintf("after %d answers", got))
				}
				r.Check(!bytes.Contains(raw, []byte("-32013")), "refused: %.200s", raw)
			}
			r.Arrived("calls answered", 21, 21)
		},
	}, &Case{
		Name: "started-later", Family: contract, Needs: NeedIPC | NeedGuard,
		Recipe: "admin_startHTTP over IPC after admin_stopHTTP; then the stalled and the oversized body against it",
		Bound:  "the same limits: 413 for 6 MiB, 408 for a stalled body",
		Why:    "a server started by hand must be as guarded as one started by a flag",
		Run:    startedLater,
	}, &Case{
		Name: "forwarded-clients", Family: contract, Needs: NeedGuard, NoPolite: true, // it would wait in the same short queue
		Flags:  []string{"rpc.client.trusted-proxies=127.0.0.1/32", "rpc.client.local=false", "rpc.conn.max-per-client=1000", "rpc.admission.concurrency=4", "rpc.admission.cpu=4", "rpc.admission.queue=4", evm4s},
		Recipe: "behind a trusted proxy one X-Forwarded-For client floods with calls of 4 s, another makes one small call",
		Bound:  "the other is served next, though all places were taken",
		Why:    "clients behind a proxy are told apart, so that one cannot use up what is shared",
		Run: func(r *Run) {
			for range 20 {
				c := r.Raw(rig.Dialer{Forward: "203.0.113.7"})
				r.Must(c.Request(rig.SlowCall(1)), "slow call")
			}
			r.Working("slow calls")
			begun := time.Now()
			var t Tally
			t.Add(outcome(r.HTTP(rig.Dialer{Forward: "203.0.113.8"}).Send(r.Ctx, rig.Call(1, "eth_call", rig.Raw(`{"to":"0x00000000000000000000000000000000000000cc"}`), "latest"))))
			r.Exactly("served", t.Get("served"), 1)
			r.AtMost("after", time.Since(begun).Seconds(), 5, "s")
		},
	}, &Case{
		Name: "shutdown-under-fire", Family: contract, Needs: NeedChain, Alone: true, NoPolite: true,
		Flags:  []string{"rpc.admission.queue=256"},
		Recipe: "the node is asked to end while 300 slow calls run and wait, more than there are places",
		Bound:  "clients are answered or cut, and the RPC servers down, within 5 s",
		Why:    "a restart must not hang on its clients",
		Run:    shutdown,
	}, &Case{
		Name: "shutdown-stalled-readers", Family: contract, Needs: NeedChain | NeedWS, Alone: true, NoPolite: true,
		Flags:  []string{"rpc.admission.queue=256"},
		Recipe: "the same, while 200 WebSockets have asked for more than they read",
		Bound:  "clients are answered or cut, and the RPC servers down, within 5 s",
		Why:    "what each client that does not read gets of the time must not add up",
		Run: func(r *Run) {
			call := rig.Call(1, "eth_getBlockByNumber", "latest", false)
			frames := bytes.Repeat(rig.Frame(true, 1, call), 1000)
			conns := make([]*rig.WS, 200)
			for i := range conns {
				conns[i] = r.WS(r.narrow(i % 50))
			}
			Parallel(len(conns), func(i int) {
				conns[i].Net.SetWriteDeadline(time.Now().Add(5 * time.Second))
				for range 5 {
					if _, err := conns[i].Net.Write(frames); err != nil {
						return
					}
				}
			})
			shutdown(r)
		},
	})
}

// holdPlace has a slow call take the only place, and waits until it has it.
func holdPlace(r *Run) {
	c := r.Raw(r.Attacker(0))
	r.Must(c.Request(rig.SlowCall(1)), "slow call")
	ipc := r.IPC()
	r.Check(rig.Until(r.Ctx, 5*time.Second, func() bool { l, err := getLimits(ipc); return err == nil && l.Executing >= 1 }), "the slow call does not run")
}

func refusal(r *Run) {
	holdPlace(r)
	const want = `"error":{"code":-32013,"message":"Request queue is full"}`
	c := r.Raw(r.Attacker(1))
	for i := range 3 { // on one connection: it is kept
		r.Must(c.Request(rig.Call(7+i, "eth_gasPrice")), "call")
		status, _, body, err := c.Response(5 * time.Second)
		r.Must(err, "refusal")
		r.Exactly("status", status, 429)
		got := strings.TrimSpace(string(body))
		r.Check(got == fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,%s}`, 7+i, want), "refused with %s", got)
	}
	status, _, body, err := r.HTTP(r.Attacker(1)).Post(r.Ctx, rig.Batch(rig.Call(1, "eth_gasPrice"), rig.Call(2, "eth_blockNumber"), rig.Call(3, "eth_gasPrice")))
	r.Must(err, "batch")
	r.Exactly("batch status", status, 200)
	r.Check(bytes.Count(body, []byte(want)) == 2, "batch: %s", body)
	ws := r.WS(r.Attacker(2))
	r.Must(ws.Send(rig.Call(5, "eth_gasPrice")), "call")
	rs, err := ws.Next(5 * time.Second)
	r.Must(err, "refusal over WebSocket")
	r.Check(rs[0].Code() == codeBusy && rs[0].Err.Data == nil, "refused over WebSocket with %v", rs[0].Err)
	status, reply, err := r.HTTP(r.Attacker(1)).Send(r.Ctx, rig.Call(1, "eth_chainId"))
	r.Check(outcome(status, reply, err) == "served", "a light call was not served")
	r.Arrived("calls answered", 1, 1)
}

// round is a set of calls whose answers do not depend on time.
func round(n *rig.Node, r *Run) (out []string) {
	c := rig.NewHTTP(n.HTTP, rig.Dialer{})
	defer c.Close()
	bodies := [][]byte{
		rig.Call(1, "eth_chainId"), rig.Call(2, "net_version"), rig.Call(3, "no_such"), rig.Call(4, "eth_getBalance"),
		rig.Call(5, "eth_getBalance", "nonsense", "latest"), rig.Call(6, "eth_getBlockByNumber", "0x0", false),
		rig.Call(7, "eth_call", rig.Raw(`{"to":"0x00000000000000000000000000000000000000cc"}`), "latest"),
		rig.Batch(rig.Call(1, "eth_chainId"), rig.Call(2, "no_such"), []byte("1")),
		[]byte("[]"), []byte("{}"), []byte("1"), []byte("nonsense"), []byte(`{"jsonrpc":"2.0","method":"eth_chainId"}`),
		[]byte(`{"jsonrpc":"2.0","id":[1],"method":"eth_chainId"}`), []byte(`{"jsonrpc":"2.0","id":"a\u00e9","method":"eth_chainId"}`),
		rig.Call(8, "eth_subscribe", "newHeads"), rig.Call(9, "rpc_modules"), []byte(""),
		rig.Call(10, "eth_getLogs", rig.Raw(`{"fromBlock":"0x0","toBlock":"0x0"}`)), rig.Call(11, "eth_unsubscribe", "0x1"),
		rig.Call(12, "eth_uninstallFilter", "0x1"), rig.Call(13, "eth_getFilterChanges", "0x1"),
	}
	for _, b := range bodies {
		for _, method := range []string{"POST", "PUT", "GET", "OPTIONS"} {
			status, h, body, err := c.Do(r.Ctx, method, bytes.NewReader(b))
			out = append(out, fmt.Sprintf("%s %.60s: %d %q %s %v", method, b, status, h.Get("Content-Type"), body, err))
		}
	}
	status, _, body, err := c.Do(r.Ctx, "GET", nil)
	out = append(out, fmt.Sprintf("GET: %d %s %v", status, body, err))
	status, _, body, err = c.Post(r.Ctx, bytes.Repeat([]byte(" "), 6*mib))
	out = append(out, fmt.Sprintf("6 MiB: %d %s", status, body))
	status, _, body, err = c.Post(r.Ctx, rig.Call(1, "eth_chainId"), "Content-Type", "text/plain")
	out = append(out, fmt.Sprintf("text/plain: %d %s %v", status, body, err))

	ws, err := rig.DialWS(r.Ctx, n.WS, rig.Dialer{})
	r.Must(err, "WebSocket")
	defer ws.Abort()
	for _, b := range bodies[:16] {
		if bytes.Equal(b, []byte("nonsense")) || bytes.Equal(b, []byte(`{"jsonrpc":"2.0","method":"eth_chainId"}`)) || bytes.Contains(b, []byte("eth_subscribe")) {
			continue
		}
		if err := ws.Send(b); err != nil {
			out = append(out, err.Error())
			break
		}
		ws.SetReadDeadline(time.Now().Add(10 * time.Second))
		_, msg, err := ws.ReadMessage()
		out = append(out, fmt.Sprintf("ws %.60s: %s %v", b, msg, err))
		if err != nil {
			break
		}
	}
	return out
}

// compareOff has the guard turned off answer as stock geth does, where one of the same
// release is at hand, and the guard turned on as the one turned off.
func compareOff(r *Run) {
	off := round(r.Node, r)
	r.Arrived("replies", len(off), 50)
	compare := func(name string, b *rig.Binary) {
		n, err := rig.StartNode(b, rig.NodeConfig{})
		r.Must(err, name)
		defer n.Stop()
		different := 0
		for i, got := range round(n, r) {
			a, b := stripChain(off[i]), stripChain(got)
			if a != b && !(name == "on" && strings.HasPrefix(a, "6 MiB: 413 ") && strings.HasPrefix(b, "6 MiB: 413 {")) {
				if different++; different <= 3 {
					r.Break("off: %.300s | %s: %.300s", a, name, b)
				}
			}
		}
		r.Exactly("different from "+name, different, 0)
	}
	r.Note("compared", float64(len(off)), "")
	if path := r.suite.Opt.Stock; path == "" {
		r.notSeen("stock, no binary (--stock)")
	} else if stock, err := rig.ProbeBinary(path); err != nil || stock.Release != r.Node.Binary.Release {
		r.notSeen("stock of the same release")
	} else {
		compare("stock", stock)
	}
	compare("on", r.Node.Binary)
}

var chainRE = regexp.MustCompile(`0x[0-9a-f]{32,}|127\.0\.0\.1:\d+`)

// stripChain takes out what depends on the chain and the port.
func stripChain(s string) string { return chainRE.ReplaceAllString(s, "#") }

func startedLater(r *Run) {
	ipc := r.IPC()
	_, port, _ := net.SplitHostPort(r.Node.HTTP)
	for _, call := range []struct {
		method string
		args   []any
	}{{"admin_stopHTTP", nil}, {"admin_startHTTP", []any{"127.0.0.1", json.Number(port), "*", "eth,net", "*"}}} {
		reply, err := ipc.Call(10*time.Second, call.method, call.args...)
		r.Must(err, call.method)
		if reply.Err != nil {
			r.Must(reply.Err, call.method)
		}
	}
	c := r.Raw(r.Attacker(0))
	r.Must(c.Head("POST", 4*mib), "headers")
	io.WriteString(c, "{")
	status, _, body, err := r.HTTP(r.Attacker(1)).Post(r.Ctx, bytes.Repeat([]byte(" "), 6*mib))
	if err == nil {
		r.Exactly("6 MiB", status, 413)
	} else {
		r.Break("6 MiB: %v", err)
	}
	status, _, body, err = c.Response(15 * time.Second)
	r.Must(err, "a stalled body")
	r.Arrived("bodies answered", 1, 1)
	r.Exactly("stalled body", status, 408)
	r.Check(bytes.Contains(body, []byte(`"error"`)), "answered %q", body)
}

// shutdown asks the node to end while slow calls execute and wait.
func shutdown(r *Run) {
	t := r.flood(300, 50, func(i int) []byte { return rig.SlowCall(i) })
	r.Working("slow calls")
	ended := make(chan time.Duration, 1)
	go func() {
		begun := time.Now()
		r.Node.Interrupt(30 * time.Second)
		ended <- time.Since(begun)
	}()
	begun := time.Now()
	select {
	case <-t.done:
	case <-time.After(30 * time.Second):
	}
	r.AtMost("clients let go after", time.Since(begun).Seconds(), 5, "s")
	rig.Until(r.Ctx, 30*time.Second, func() bool {
		c, err := net.DialTimeout("tcp", r.Node.WS, time.Second)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	r.AtMost("servers down after", time.Since(begun).Seconds(), 5, "s")
	r.Note("ended after", (<-ended).Seconds(), "s")
}
