// SPDX-License-Identifier: LGPL-3.0-or-later

package attack

import (
	"context"
	"fmt"
	"sync"
	"time"

	"rpcguard/tests/slowclient/rig"
)

// Readers that are slow, and readers that take nothing. All have a receive buffer of
// 4 KiB, so that what they do not read fills the server's.

func init() {
	add(&Case{
		Name: "slow-readers-get-all", Family: replies, Needs: NeedWS,
		Recipe: "over WebSocket, one client takes a reply of 20 MB at 200 KB a second, another one of 2 MB at 50 KB a second",
		Bound:  "both get the last byte",
		Why:    "a healthy client on a slow line must get what it asked for",
		Run: func(r *Run) {
			large := 20_000_000 / r.Scale(4, 1)
			readers := []*slowReader{
				newSlowReader(r, 0, large, 200_000),
				newSlowReader(r, 1, 2_000_000, 50_000),
			}
			var wg sync.WaitGroup
			for _, s := range readers {
				wg.Go(func() { s.read(r.Ctx, 4*time.Duration(s.size/s.rate)*time.Second) })
			}
			wg.Wait()
			r.Arrived("readers with the beginning", begunReaders(readers), len(readers))
			for _, s := range readers {
				r.AtLeast(fmt.Sprintf("of %s at %s/s", FormatBytes(int64(s.size)), FormatBytes(int64(s.rate))), float64(s.taken), float64(s.size), "B")
			}
		},
	}, &Case{
		Name: "takes-nothing", Family: replies, Needs: NeedWS, Long: true,
		Recipe: "a WebSocket client asks for 20 MB and never reads; then 12 do so at once",
		Bound:  "the first is cut within 65 s; of the 12, which fill more than half of the budget, those beyond half within 15 s",
		Why:    "who takes nothing holds memory that others need",
		Run: func(r *Run) {
			first := newSlowReader(r, 0, 20_000_000, 0)
			after := first.untilCut(r.Ctx, 90*time.Second)
			r.Arrived("answers begun", begunReaders([]*slowReader{first}), 1)
			r.AtMost("alone: cut after", after.Seconds(), 65, "s")

			// 12 x 20 MB are 240 MB; three quarters of 256 MiB take 9 of them, which is
			// 52 MB over half: three must go.
			crowd := make([]*slowReader, 12)
			for i := range crowd {
				crowd[i] = newSlowReader(r, 1+i, 20_000_000, 0)
			}
			cut := make(chan time.Duration, len(crowd))
			var wg sync.WaitGroup
			for _, s := range crowd {
				wg.Go(func() {
					if d := s.untilCut(r.Ctx, 30*time.Second); d < 30*time.Second {
						cut <- d
					}
				})
			}
			wg.Wait()
			close(cut)
			within := 0
			for d := range cut {
				if d <= 15*time.Second {
					within++
				}
			}
			r.AtLeast("of 12 cut within 15 s", float64(within), 3, "")
		},
	}, &Case{
		Name: "batches-of-25MB-never-read", Family: replies, Needs: NeedChain, Before: fullBlock,
		Recipe: "64 clients ask for a batch whose reply is nearly the 25 MB that upstream allows, and never read",
		Bound:  "memory grows by at most twice the reply budget and 64 MiB",
		Why:    "the largest answers there are, from everybody at once",
		Run: func(r *Run) {
			body, size := r.bigReply()
			r.Note("reply", float64(size), "B")
			before := r.Watch.Peak()
			r.Unread(64, 0, body, 4)
			r.For(r.Seconds(6, 20))
			r.MemorySince(before, (2*256+64)*mib)
		},
	}, &Case{
		Name: "shutdown-with-stuck-writers", Family: contract, Needs: NeedWS, Alone: true, NoPolite: true,
		Recipe: "the node is asked to end while 16 WebSocket clients do not take 20 MB each",
		Bound:  "their connections end within 5 s",
		Why:    "a restart must not hang on its clients",
		Run: func(r *Run) {
			readers := make([]*slowReader, 16)
			for i := range readers {
				readers[i] = newSlowReader(r, i, 20_000_000, 0)
			}
			r.Check(rig.Until(r.Ctx, 20*time.Second, func() bool { return begunReaders(readers) >= 4 }), "nothing is being written")
			ended := make(chan time.Duration, 1)
			begun := time.Now()
			go func() {
				r.Node.Interrupt(30 * time.Second)
				ended <- time.Since(begun)
			}()
			var wg sync.WaitGroup
			for _, s := range readers {
				wg.Go(func() { s.untilCut(r.Ctx, 30*time.Second) })
			}
			wg.Wait()
			r.Arrived("answers begun", begunReaders(readers), 4)
			r.AtMost("connections ended after", time.Since(begun).Seconds(), 5, "s")
			r.Note("node ended after", (<-ended).Seconds(), "s")
		},
	})
}

// returning is a call whose result has n bytes: code that returns as much memory.
func returning(n int) []byte {
	const at = "0x00000000000000000000000000000000000000cc"
	code := fmt.Sprintf("0x62%06x6000f3", n/2) // two hexadecimal digits a byte
	return rig.Call(1, "eth_call", map[string]any{"to": at}, "latest", map[string]any{at: map[string]any{"code": code}})
}

// slowReader takes one reply over WebSocket, as slowly as it is told to.
type slowReader struct {
	ws          *rig.WS
	size, rate  int // bytes, and bytes a second
	taken       int64
	atHandshake int64
}

func newSlowReader(r *Run, i, size, rate int) *slowReader {
	ws := r.WS(r.narrow(i))
	s := &slowReader{ws: ws, size: size, rate: rate, atHandshake: ws.Net.In.Load()}
	r.Must(ws.Send(returning(size)), "call")
	return s
}

// read takes the reply at its rate, for at most limit.
func (s *slowReader) read(ctx context.Context, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	go func() {
		for ctx.Err() == nil && s.ws.Net.In.Load()-s.atHandshake < int64(s.size) {
			rig.Sleep(ctx, 50*time.Millisecond)
		}
		cancel()
	}()
	s.taken, _ = rig.Trickle(ctx, s.ws.Net, s.rate)
}

// untilCut reads nothing and returns when the server has ended the connection, or
// limit. Reading would be progress, so the client writes, empty pings: to a connection
// that is gone that fails.
func (s *slowReader) untilCut(ctx context.Context, limit time.Duration) time.Duration {
	begun := time.Now()
	for ctx.Err() == nil && time.Since(begun) < limit {
		s.ws.Net.SetWriteDeadline(time.Now().Add(time.Second))
		if _, err := s.ws.Net.Write(rig.Frame(true, 9, nil)); err != nil {
			return time.Since(begun)
		}
		rig.Sleep(ctx, 250*time.Millisecond)
	}
	return limit
}

// begunReaders counts those to whom the first byte of a reply has come. It reads it.
func begunReaders(readers []*slowReader) (n int) {
	for _, s := range readers {
		if s.taken == 0 {
			s.ws.Net.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			m, _ := s.ws.Net.Read(make([]byte, 1))
			s.taken += int64(m)
		}
		if s.taken > 0 {
			n++
		}
	}
	return n
}
