// SPDX-License-Identifier: LGPL-3.0-or-later

package attack

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"time"

	"rpcguard/tests/slowclient/rig"
)

// fragments has n clients send messages of total bytes in fragments, together rate
// bytes a second (0: as fast as they are taken), without ever ending them.
func fragments(r *Run, n, total, frag int, rate float64) {
	piece := rig.Frame(false, 0, bytes.Repeat([]byte("0,"), frag/2))
	first := rig.Frame(false, 1, append([]byte("["), bytes.Repeat([]byte("0,"), frag/2)...))
	// Small fragments go out several in one write.
	group := max(1, 64<<10/len(piece))
	many := bytes.Repeat(piece, group)
	var t Tally
	var bytesSent atomic.Int64
	Parallel(n, func(i int) {
		ws, err := rig.DialWS(r.Ctx, r.Node.WS, r.Attacker(i%20))
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
		pace := time.Duration(0)
		if rate > 0 {
			pace = time.Duration(float64(len(many)*n) / rate * float64(time.Second))
		}
		sent := 0
		for ; sent < total && err == nil; sent += frag * group {
			_, err = ws.Net.Conn.Write(many)
			if pace > 0 {
				r.For(pace)
			}
		}
		bytesSent.Add(int64(sent))
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
	r.Arrived("connections", n-t.Get("not connected"), n)
	r.Arrived("MiB sent", int(bytesSent.Load()>>20), 64)
	r.Note("closed with 1013", float64(t.Get("1013")), "")
	r.Note("still open", float64(t.Get("pending")), "")
	if r.Guarded() {
		r.Exactly("ended without a reason", n-t.Get("1013")-t.Get("pending"), 0)
	}
	r.MemoryAtMost(bodyMemory)
}
