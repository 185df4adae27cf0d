// SPDX-License-Identifier: LGPL-3.0-or-later

package attack

import (
	"strings"
	"time"

	"rpcguard/tests/slowclient/rig"
)

const http2 = "http2"

func init() {
	add(&Case{
		Name: "h2-open-and-reset", Number: 24, Family: http2, Needs: NeedH2 | NeedMetrics,
		Recipe: "100000 times HEADERS and RST_STREAM, reconnecting where the server ends it",
		Bound:  "slots and bytes back to zero, goroutines back to where they were",
		Why:    "streams given up at once must leave nothing behind",
		Run: func(r *Run) {
			before := r.Node.Goroutines()
			r.Arrived("streams sent", rapidReset(r, r.Scale(10_000, 100_000), true, (*rig.H2).Reset), 1000)
			after := 0
			rig.Until(r.Ctx, 5*time.Second, func() bool { after = r.Node.Goroutines(); return after <= before+30 })
			r.AtMost("goroutines more", float64(after-before), 30, "")
			r.GaugesZero(5 * time.Second)
		},
	}, &Case{
		Name: "h2-rapid-reset", Number: 40, Family: http2, Quick: true, Needs: NeedH2,
		Recipe: "20000 times HEADERS with a call and RST_STREAM on one connection, as fast as it takes them",
		Bound:  "the connection is ended; polite latency",
		Why:    "opening and giving up streams must not be cheaper than answering them",
		Run: func(r *Run) {
			sent := rapidReset(r, 20_000, false, (*rig.H2).Reset)
			r.Arrived("streams taken", sent, 100)
			r.For(r.Seconds(3, 6))
			r.AtMost("streams taken", float64(sent), 15_000, "")
		},
	}, &Case{
		Name: "h2-server-resets", Number: 40, Family: http2, Needs: NeedH2,
		Recipe: "20000 times HEADERS with a call and a window update by 0, for which the server resets the stream itself",
		Bound:  "the connection is ended; polite latency",
		Why:    "having the server give a stream up is the same trick",
		Run: func(r *Run) {
			sent := rapidReset(r, 20_000, false, (*rig.H2).BreakRule)
			r.Arrived("streams taken", sent, 100)
			r.For(r.Seconds(3, 6))
			r.AtMost("streams taken", float64(sent), 15_000, "")
		},
	}, &Case{
		Name: "h2-large-headers", Number: 43, Family: http2, Quick: true, Needs: NeedH2,
		Recipe: "240 streams of one connection with 0.9 MB of headers each and no body",
		Bound:  "memory grows by at most 96 MiB",
		Why:    "headers are bytes too",
		Run: func(r *Run) {
			h := r.H2(r.Attacker(0))
			value := strings.Repeat("a", 9000)
			var header []string
			for i := range 100 {
				header = append(header, "x-"+string(rune('a'+i%26))+string(rune('a'+i/26)), value)
			}
			opened := 0
			for opened < 240 && !h.Ended() {
				if _, err := h.Open(1000, false, header...); err != nil {
					break
				}
				opened++
			}
			r.Arrived("streams sent", opened, 1)
			r.Note("streams", float64(opened), "")
			r.For(r.Seconds(1, 5))
			r.MemoryAtMost(96 * mib)
		},
	}, &Case{
		Name: "h2-streams", Family: http2, Needs: NeedH2,
		Recipe: "the number of streams one connection may open",
		Bound:  "at most 100",
		Why:    "one TCP connection must not be 250 clients",
		Run: func(r *Run) {
			h := r.H2(r.Attacker(0))
			r.Arrived("settings", 1, 1)
			r.Check(h.MaxStreams() > 0, "no limit is announced")
			r.AtMost("streams allowed", float64(h.MaxStreams()), 100, "")
		},
	}, &Case{
		Name: "h2-slow-bodies", Family: http2, Needs: NeedH2,
		Recipe: "100 streams of one connection send 64 bytes of 5 MiB and fall silent; a call goes over the same connection",
		Bound:  "the call is served at once; the silent streams end within 15 s",
		Why:    "one stalled stream must not spoil the others on its connection",
		Run: func(r *Run) {
			h := r.H2(r.Attacker(0))
			n := 100
			if m := h.MaxStreams(); m > 0 {
				n = min(n, m)
			}
			ids := make([]uint32, n-1)
			for i := range ids {
				id, err := h.Open(bodyMax-1, false)
				r.Must(err, "stream")
				r.Must(h.Data(id, []byte(strings.Repeat(" ", 64)), false), "first bytes")
				ids[i] = id
			}
			call := rig.Call(1, "eth_blockNumber")
			id, err := h.Open(int64(len(call)), false)
			r.Must(err, "stream")
			r.Must(h.Data(id, call, true), "call")
			res, err := h.Result(id, 5*time.Second)
			r.Must(err, "a call beside them")
			r.Arrived("calls answered", 1, 1)
			r.Exactly("status", res.Status, 200)
			begun := time.Now()
			var t Tally
			Parallel(len(ids), func(i int) {
				res, err := h.Result(ids[i], 35*time.Second)
				if err == nil && res.Status == 408 {
					t.Add("408")
				}
			})
			r.AtLeast("ended with 408", float64(t.Get("408")), float64(len(ids)), "")
			r.AtMost("until then", time.Since(begun).Seconds(), 15, "s")
		},
	})
}

// rapidReset opens and gives up n streams, each with a whole call, and tells how
// many the server took before it ended the connection.
func rapidReset(r *Run, n int, reconnect bool, reset func(*rig.H2, uint32) error) (sent int) {
	call := rig.Call(1, "eth_getBlockByNumber", "latest", true)
	h := r.H2(r.Attacker(0))
	failures := 0
	for sent < n && r.Ctx.Err() == nil && failures < 200 {
		var err error
		if h.Ended() {
			err = rig.ErrNoH2
		} else {
			var id uint32
			if id, err = h.Open(int64(len(call)), false); err == nil {
				if err = h.Data(id, call, true); err == nil {
					err = reset(h, id)
				}
			}
		}
		if err == nil {
			sent++
			continue
		}
		if !reconnect {
			return sent
		}
		failures++
		h.Close()
		h = r.H2(r.Attacker(0))
	}
	return sent
}
