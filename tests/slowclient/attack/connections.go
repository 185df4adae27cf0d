// SPDX-License-Identifier: LGPL-3.0-or-later

package attack

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"rpcguard/tests/slowclient/rig"
)

const connections = "connections"

func init() {
	add(&Case{
		Name: "slow-headers", Number: 44, Family: connections,
		Recipe: "many connections send headers of 1 MiB, 16 KiB at a time, 7000 times a second in all (quick: 300, full: 2000)",
		Bound:  "each reads 431; memory grows by at most 128 MiB (quick) or 512 MiB (full)",
		Why:    "headers are bytes too",
		Run:    slowHeaders,
	}, &Case{
		Name: "log-by-ids", Number: 39, Family: connections, Quick: true, Needs: NeedChain,
		Recipe: "failing calls with ids of 4 MiB, and batches of 1000 unknown methods, for some seconds",
		Bound:  "the log grows by less than 1 MB a second",
		Why:    "what a client does must not fill the disk",
		Run: func(r *Run) {
			before, begun := r.Node.LogSize(), time.Now()
			end := begun.Add(r.Seconds(3, 8))
			long := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":"%s","method":"eth_call","params":[]}`, strings.Repeat("x", 4*mib))
			var batch [][]byte
			for i := range 1000 {
				batch = append(batch, rig.Call(i, "nobody_knows"+fmt.Sprint(i)))
			}
			unknown := rig.Batch(batch...)
			var answered [2]int
			Parallel(2, func(i int) {
				c := r.HTTP(r.Attacker(i))
				for time.Now().Before(end) && r.Ctx.Err() == nil {
					if _, _, _, err := c.Post(r.Ctx, [][]byte{long, unknown}[i]); err == nil {
						answered[i]++
					}
				}
			})
			r.Arrived("requests of either kind answered", min(answered[0], answered[1]), 3)
			r.AtMost("log a second", float64(r.Node.LogSize()-before)/time.Since(begun).Seconds(), 1<<20, "B")
		},
	}, &Case{
		Name: "origins-logged", Number: 47, Family: connections, Needs: NeedChain | NeedWS, Flags: []string{"ws.origins=http://nobody.invalid"},
		Recipe: "WebSocket handshakes with an Origin of 900 KB and of 30 KB in turn",
		Bound:  "refused with 403 or 431; the log grows by less than 1 MB a second",
		Why:    "a header must not be written to disk whole",
		Run: func(r *Run) {
			before, begun := r.Node.LogSize(), time.Now()
			var t Tally
			n := r.Scale(100, 400)
			for i := range n {
				origin := "http://" + strings.Repeat("o", []int{900_000, 30_000}[i%2])
				ws, err := rig.DialWS(r.Ctx, r.Node.WS, r.Attacker(0), "Origin", origin)
				switch se, ok := err.(*rig.StatusError); {
				case err == nil:
					ws.Abort()
					t.Add("accepted")
				case ok:
					t.Add(fmt.Sprint(se.Status))
				default:
					t.Add("cut")
				}
			}
			r.Exactly("accepted", t.Get("accepted"), 0)
			refused := t.Get("403") + t.Get("431")
			r.Arrived("handshakes refused", refused, n/2) // a long one may be cut while it is sent
			r.Exactly("answered otherwise", n-refused-t.Get("cut"), 0)
			r.AtMost("log a second", float64(r.Node.LogSize()-before)/max(1, time.Since(begun).Seconds()), 1<<20, "B")
		},
	}, &Case{
		Name: "ping-flood", Number: 48, Family: connections, Needs: NeedWS,
		Recipe: "8 WebSockets send pings as fast as they are taken and read nothing",
		Bound:  "polite latency; memory grows by at most 64 MiB",
		Why:    "control frames are work too",
		Run: func(r *Run) {
			pings := bytes.Repeat(rig.Frame(true, 9, []byte("ping")), 100)
			r.hammer(8, func(c net.Conn) error { _, err := c.Write(pings); return err })
			r.MemoryAtMost(64 * mib)
		},
	}, &Case{
		Name: "empty-continuations", Number: 48, Family: connections, Needs: NeedWS,
		Recipe: "8 WebSockets begin a message and send empty continuation frames without end",
		Bound:  "polite latency; memory grows by at most 64 MiB",
		Why:    "frames that carry nothing are no progress",
		Run: func(r *Run) {
			empty := bytes.Repeat(rig.Frame(false, 0, nil), 500)
			begin := rig.Frame(false, 1, []byte("["))
			var started atomic.Int64
			r.hammer(8, func(c net.Conn) error {
				if started.Add(1) <= 8 {
					if _, err := c.Write(begin); err != nil {
						return err
					}
				}
				_, err := c.Write(empty)
				return err
			})
			r.MemoryAtMost(64 * mib)
		},
	}, &Case{
		Name: "handshake-flood", Number: 48, Family: connections, Needs: NeedWS,
		Recipe: "8 clients connect, upgrade and leave as fast as they can",
		Bound:  "polite latency",
		Why:    "connecting is work too",
		Run: func(r *Run) {
			end := time.Now().Add(r.Seconds(4, 10))
			var n atomic.Int64
			Parallel(8, func(i int) {
				for time.Now().Before(end) && r.Ctx.Err() == nil {
					if ws, err := rig.DialWS(r.Ctx, r.Node.WS, r.Attacker(i)); err == nil {
						ws.Abort()
						n.Add(1)
					}
				}
			})
			r.Arrived("handshakes", int(n.Load()), 100)
			r.Note("handshakes", float64(n.Load()), "")
		},
	}, &Case{
		Name: "idle-sockets-lock-out", Number: 49, Family: connections, Needs: NeedWS,
		Recipe: "10 addresses hold many idle WebSockets each (quick: 200, full: 1000); then others connect",
		Bound:  "others are let in and served",
		Why:    "a limit on connections must not become the cheaper way to lock everybody out",
		Run: func(r *Run) {
			var open atomic.Int64
			each := r.Scale(200, 1000)
			Parallel(10, func(i int) {
				for range each {
					ws, err := rig.DialWS(r.Ctx, r.Node.WS, r.Attacker(i))
					if err != nil {
						return
					}
					r.OnClose(ws.Abort)
					open.Add(1)
				}
			})
			r.Arrived("connections open", int(open.Load()), 9*each)
			r.Note("open", float64(open.Load()), "")
			served := 0
			for i := range 20 {
				ws, err := rig.DialWS(r.Ctx, r.Node.WS, r.Attacker(100+i))
				if err != nil {
					continue
				}
				if reply, err := ws.Call(5*time.Second, "eth_blockNumber"); err == nil && reply.Err == nil {
					served++
				}
				ws.Abort()
			}
			r.Exactly("others served", served, 20)
		},
	}, &Case{
		Name: "connections-per-client", Family: connections, Needs: NeedGuard | NeedWS, Flags: []string{"rpc.conn.max-per-client=50"},
		Recipe: "one address opens 80 WebSockets where 50 are allowed",
		Bound:  "at most 50 open, 503 beyond; another address is let in",
		Why:    "one client must not take all connections",
		Run: func(r *Run) {
			var t Tally
			for range 80 {
				ws, err := rig.DialWS(r.Ctx, r.Node.WS, r.Attacker(0))
				if err == nil {
					r.OnClose(ws.Abort)
					t.Add("open")
				} else if se, ok := err.(*rig.StatusError); ok {
					t.Add(fmt.Sprint(se.Status))
				} else {
					t.Add("cut")
				}
			}
			r.Arrived("connections answered", t.Get("open")+t.Get("503"), 80)
			r.AtMost("open", float64(t.Get("open")), 50, "")
			r.AtLeast("refused 503", float64(t.Get("503")), 30, "")
			ws := r.WS(r.Attacker(1))
			reply, err := ws.Call(5*time.Second, "eth_blockNumber")
			r.Must(err, "another client")
			r.Check(reply.Err == nil, "another client: %v", reply.Err)
		},
	})
}

// hammer has n WebSockets write until the time is over, or the server ends them.
func (r *Run) hammer(n int, write func(c net.Conn) error) {
	end := time.Now().Add(r.Seconds(4, 10))
	var ended, taken atomic.Int64
	Parallel(n, func(i int) {
		ws, err := rig.DialWS(r.Ctx, r.Node.WS, r.Attacker(i))
		if err != nil {
			return
		}
		defer ws.Abort()
		defer func() { taken.Add(ws.Net.Out.Load()) }()
		for time.Now().Before(end) && r.Ctx.Err() == nil {
			ws.Net.SetWriteDeadline(time.Now().Add(time.Second))
			err := write(ws.Net)
			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				r.For(100 * time.Millisecond)
				continue
			}
			if err != nil {
				ended.Add(1)
				return
			}
		}
	})
	r.Arrived("bytes taken", int(taken.Load()), 4<<10)
	r.Note("bytes taken", float64(taken.Load()), "B")
	r.Note("ended by the server", float64(ended.Load()), "")
}

// headerRest is how long each of the 20 senders of slowHeaders waits for an answer before
// it sends a piece of the next header. 60 pieces of 2000 headers take 18 s, less than the
// 30 s a header may take.
const headerRest = 3 * time.Millisecond

func slowHeaders(r *Run) {
	n := r.Scale(300, 2000)
	before := r.Node.Goroutines()
	conns := make([]*rig.RawHTTP, n)
	Parallel(20, func(g int) {
		for i := g; i < n; i += 20 {
			c, err := rig.DialRaw(r.Ctx, r.Node.HTTP, r.Attacker(i%40))
			if err != nil {
				continue
			}
			conns[i] = c
			r.OnClose(func() { c.Close() })
			fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: %s\r\n", r.Node.HTTP)
			rig.Sleep(r.Ctx, headerRest)
		}
	})
	r.Goroutines("connections with headers begun", before, n/2)
	line := []byte("X-Filler: " + strings.Repeat("f", 16<<10) + "\r\n")
	// 60 x 16 KiB are just below upstream's limit of 1 MiB, which it would answer with
	// 431 as well. All advance together, and none in a hurry: sent as fast as two
	// processors can, 2000 headers are a second in which the sender and its kernel are
	// what everybody waits for.
	writing := make([]bool, n)
	for i := range writing {
		writing[i] = conns[i] != nil
	}
	for range 60 {
		Parallel(20, func(g int) {
			for i := g; i < n; i += 20 {
				if !writing[i] || conns[i].Begun(headerRest) {
					writing[i] = false
					continue
				}
				conns[i].SetWriteDeadline(time.Now().Add(2 * time.Second))
				_, err := conns[i].Write(line)
				writing[i] = err == nil
			}
		})
	}
	r.For(time.Second)
	r.MemoryAtMost(float64(r.Scale(128, 512)) * mib)
	var t Tally
	Parallel(20, func(g int) {
		for i := g; i < n; i += 20 {
			if conns[i] == nil {
				t.Add("not connected")
				continue
			}
			status, _, _, err := conns[i].Response(time.Second)
			switch {
			case err == nil:
				t.Add(fmt.Sprint(status))
			case timedOut(err):
				t.Add("open")
			default:
				t.Add("cut") // the answer was lost to a reset
			}
		}
	})
	r.Note("cut", float64(t.Get("cut")), "")
	r.Note("still open", float64(t.Get("open")), "")
	r.AtLeast("read 431", float64(t.Get("431"))/float64(n), 0.95, "")
}
