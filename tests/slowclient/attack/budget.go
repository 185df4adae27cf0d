// SPDX-License-Identifier: LGPL-3.0-or-later

package attack

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"time"

	"rpcguard/tests/slowclient/rig"
)

// wrongToken floods the engine port with bodies that nobody is allowed to send.
func wrongToken(r *Run) {
	n := r.Scale(20, 50)
	head := rig.Call(1, "eth_subscribe", "newHeads")
	body := append(head, bytes.Repeat([]byte(" "), 5*mib-len(head))...)
	high := r.Metric("rpc_body_inuse_max")
	var t Tally
	Parallel(n, func(i int) {
		c, err := rig.DialRaw(r.Ctx, r.Node.Auth, r.Attacker(i%10))
		if err != nil {
			t.Add("not connected")
			return
		}
		r.OnClose(func() { c.Close() })
		go func() { // the answer may come before the body is through
			if c.Head("POST", int64(len(body)), "Authorization", "Bearer wrong") == nil {
				c.Write(body)
			}
		}()
		status, _, _, err := c.Response(20 * time.Second)
		if err != nil {
			t.Add("cut")
		} else {
			t.Add(fmt.Sprint(status))
		}
	})
	r.Arrived("requests answered or cut", n-t.Get("not connected"), n)
	// A server that closes while the client is still sending may lose its answer to a
	// reset; that is upstream's way here, since nothing of ours comes before the token.
	r.AtLeast("read 401", float64(t.Get("401")), float64(n)*0.9, "")
	r.Exactly("answered otherwise", n-t.Get("401")-t.Get("cut"), 0)
	r.MemoryAtMost(64 * mib)
	// What the polite client's own small bodies were charged is all there may be.
	r.MetricBecomes("rpc_body_inuse_max", 2*time.Second, "as before or under 64 KiB", func(v float64) bool { return v <= max(high, 64<<10) })
}

// fullBudget has slow uploads, each followed by another, hold all of the budget that
// large bodies may have.
func fullBudget(r *Run) {
	stop := make(chan struct{})
	r.OnClose(func() { close(stop) })
	chunk := make([]byte, 64<<10)
	upload := func(i int) {
		c, err := rig.DialRaw(r.Ctx, r.Node.HTTP, r.Attacker(i))
		if err != nil {
			return
		}
		defer c.Close()
		if c.Head("POST", 4*mib) != nil {
			return
		}
		for sent := 0; sent < 4*mib; sent += len(chunk) {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
			if _, err := c.Write(chunk); err != nil {
				return
			}
		}
		c.Begun(5 * time.Second)
	}
	for i := range 30 {
		go func() {
			for {
				select {
				case <-stop:
					return
				default:
					upload(i)
				}
			}
		}()
	}
	refused := r.Metric("rpc_body_refused")
	full := rig.Until(r.Ctx, 15*time.Second, func() bool { return r.Metric("rpc_body_refused") > refused })
	r.Check(full, "the budget was never full")
	r.Arrived("bytes held", int(r.Metric("rpc_body_inuse")), 24*mib)
	r.For(r.Seconds(5, 10))
}

// readRefusals has clients upload at full speed into a budget that is full, and read
// only when they have sent everything or can send no more.
func readRefusals(r *Run) {
	const size = 4 * mib
	holder := r.Raw(r.Attacker(0))
	slow := rig.SlowCall(1)
	r.Must(holder.Request(append(slow, bytes.Repeat([]byte(" "), 2*mib-len(slow))...)), "the body that fills the budget")
	r.MetricBecomes("rpc_body_inuse", 5*time.Second, "2 MiB", func(v float64) bool { return v >= 2*mib })

	n := r.Scale(100, 200)
	body := make([]byte, size)
	var t Tally
	var first atomic.Pointer[error]
	Parallel(n, func(i int) {
		c, err := rig.DialRaw(r.Ctx, r.Node.HTTP, r.Attacker(1+i%50))
		if err != nil {
			t.Add("not connected")
			return
		}
		r.OnClose(func() { c.Close() })
		c.SetWriteDeadline(time.Now().Add(20 * time.Second))
		if err = c.Head("POST", size); err == nil {
			_, err = c.Write(body)
		}
		status, header, b, rerr := c.Response(10 * time.Second)
		switch {
		case rerr != nil:
			t.Add("lost")
			if err == nil {
				err = rerr
			}
			first.CompareAndSwap(nil, &err)
		case status == 503 && bytes.Contains(b, []byte(`"code":-32005`)) && header.Get("Retry-After") != "":
			t.Add("503")
		default:
			t.Add(fmt.Sprintf("%d %.60s", status, b))
		}
	})
	r.Arrived("uploads", n-t.Get("not connected"), n)
	if !r.AtLeast("read 503", float64(t.Get("503"))/float64(n), 0.99, "") {
		r.Break("outcomes: %s", &t)
		if err := first.Load(); err != nil {
			r.Break("first lost: %v", *err)
		}
	}
}

func pingsInside(r *Run) {
	conns := make([]*rig.WS, 30)
	for i := range conns {
		ws, err := rig.DialWS(r.Ctx, r.Node.WS, r.Attacker(i%8))
		r.Must(err, "dialing")
		r.OnClose(ws.Abort)
		conns[i] = ws
	}
	pings := bytes.Repeat(rig.Frame(true, 9, []byte("x")), 10)
	var begun, ended atomic.Int64
	limit := r.idleLimit() + 5*time.Second
	Parallel(len(conns), func(i int) {
		ws := conns[i].Net.Conn
		ws.SetWriteDeadline(time.Now().Add(limit))
		if _, err := ws.Write(append(rig.Frame(false, 1, []byte("[")), rig.Frame(false, 0, make([]byte, 64<<10))...)); err != nil {
			return
		}
		begun.Add(1)
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			if _, err := conns[i].Next(limit); err != nil && !timedOut(err) {
				ended.Add(1)
			}
		}()
		for {
			select {
			case <-gone:
				return
			case <-time.After(100 * time.Millisecond):
				ws.Write(pings) // an error shows in the reader
			}
		}
	})
	r.Arrived("messages begun", int(begun.Load()), len(conns))
	r.Exactly("ended", int(ended.Load()), len(conns))
}

func lockOut(r *Run) {
	part := rig.Frame(false, 0, make([]byte, 64<<10))
	ping := rig.Frame(true, 9, []byte("x"))
	var begun, ended atomic.Int64
	start := func(i int) {
		ws, err := rig.DialWS(r.Ctx, r.Node.WS, r.Attacker(i))
		if err != nil {
			return
		}
		r.OnClose(ws.Abort)
		ws.Net.SetWriteDeadline(time.Now().Add(20 * time.Second))
		if _, err := ws.Net.Conn.Write(rig.Frame(false, 1, []byte("["))); err != nil {
			return
		}
		begun.Add(1)
		for sent := 0; sent < 31*mib+900<<10; sent += 64 << 10 {
			if _, err := ws.Net.Conn.Write(part); err != nil {
				ended.Add(1)
				return
			}
		}
		go func() { // pings until it is ended
			defer ended.Add(1)
			go func() {
				for r.Ctx.Err() == nil {
					if _, err := ws.Net.Conn.Write(ping); err != nil {
						return
					}
					rig.Sleep(r.Ctx, time.Second)
				}
			}()
			ws.Next(2 * time.Minute)
		}()
	}
	call := rig.Call(1, "eth_blockNumber")
	body := append(call, bytes.Repeat([]byte(" "), 4*mib-len(call))...)
	for from, n := 0, 0; from < 8; from = n {
		n = map[int]int{0: 2, 2: 8}[from]
		Parallel(n-from, func(i int) { start(from + i) })
		r.Arrived("messages begun", int(begun.Load()), n)
		var t Tally
		for i := range r.Scale(10, 20) {
			t.Add(outcome(r.HTTP(r.Attacker(100+i)).Send(r.Ctx, body)))
			r.For(200 * time.Millisecond)
		}
		r.Check(t.Get("error") == 0, "beside %d: %s", n, &t)
		r.AtLeast(fmt.Sprintf("others' bodies served beside %d", n), float64(t.Get("served")), float64(r.Scale(9, 18)), "")
	}
	rig.Until(r.Ctx, 65*time.Second, func() bool { return ended.Load() == 8 })
	r.Exactly("idle messages ended within 65 s", int(ended.Load()), 8)
}
