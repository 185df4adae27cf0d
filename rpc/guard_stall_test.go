// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"math/rand"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"

	"github.com/stretchr/testify/require"
)

// fakeQueue is a send queue whose client takes what the test says.
type fakeQueue struct{ taken atomic.Uint64 }

func (q *fakeQueue) left() uint64 { return q.taken.Load() }

type stallRig struct {
	clock  *mclock.Simulated
	watch  *stallWatch
	excess atomic.Int64
}

func newStallRig(t *testing.T) *stallRig {
	r := &stallRig{clock: new(mclock.Simulated)}
	watch, err := newStallWatch(r.clock, r.excess.Load)
	if err != nil {
		t.Fatal(err)
	}
	r.watch = watch
	return r
}

// run lets time pass in ticks; one long step would fire a repeating timer once.
func (r *stallRig) run(d time.Duration) {
	for ; d > 0; d -= stallTick {
		r.clock.Run(min(d, stallTick))
	}
}

// client adds a connection with n bytes waiting, and returns when it was cut.
func (r *stallRig) client(n int64) (*stallConn, *fakeQueue, *atomic.Int64) {
	q, at := new(fakeQueue), new(atomic.Int64)
	c := r.watch.conn(q, func() { at.Store(int64(r.clock.Now())) })
	c.begin(n)
	return c, q, at
}

// Slow but honest: 50 KB/s arrive in gaps as long as the kernel makes them.
func TestGuardStallTrapHonestReaderWithGaps(t *testing.T) {
	for name, step := range map[string]struct {
		every time.Duration
		bytes uint64
	}{
		"50 KB/s":                      {time.Second, 50_000},
		"50 KB/s, 28 s apart":          {28 * time.Second, 1_400_000},
		"1.2 KB/s":                     {time.Second, 1_200},
		"64 KiB once in every 59 s":    {59 * time.Second, stallBytes},
		"64 KiB at the end of each 60": {60 * time.Second, stallBytes},
	} {
		r := newStallRig(t)
		_, q, cut := r.client(20 << 20)
		for i := 0; i < 20; i++ {
			for j := step.every; j > 0; j -= time.Second {
				if j == time.Second {
					q.taken.Add(step.bytes)
				}
				r.run(time.Second)
			}
		}
		if at := cut.Load(); at != 0 {
			t.Errorf("%s: cut after %v", name, time.Duration(at))
		}
	}
}

func TestGuardStallCutsWhoTakesNothing(t *testing.T) {
	r := newStallRig(t)
	_, q, cut := r.client(20 << 20)
	q.taken.Add(300_000) // what the buffers took
	r.run(58 * time.Second)
	if cut.Load() != 0 {
		t.Fatalf("cut after %v", time.Duration(cut.Load()))
	}
	r.run(9 * time.Second)
	if at := time.Duration(cut.Load()); at == 0 || at > 65*time.Second {
		t.Fatalf("cut after %v", at)
	}
	if r.watch.stalled() != 1 {
		t.Errorf("%d stalled", r.watch.stalled())
	}
}

// A trickle that never stops is no progress either.
func TestGuardStallCutsTrickle(t *testing.T) {
	r := newStallRig(t)
	_, q, cut := r.client(20 << 20)
	for i := 0; i < 80; i++ {
		q.taken.Add(1000)
		r.run(time.Second)
	}
	if at := time.Duration(cut.Load()); at < 60*time.Second || at > 65*time.Second {
		t.Fatalf("cut after %v", at)
	}
}

func TestGuardStallUnderPressure(t *testing.T) {
	r := newStallRig(t)
	_, _, first := r.client(20 << 20)
	r.run(3 * time.Second)
	_, _, second := r.client(20 << 20)
	_, slow, third := r.client(20 << 20)
	r.excess.Store(1)
	for i := 0; i < 20; i++ {
		slow.taken.Add(100) // slowest of all, but it moves
		r.run(time.Second)
		if first.Load() != 0 {
			r.excess.Store(0) // cutting it was enough
		}
	}
	if at := time.Duration(first.Load()); at < 10*time.Second || at > 12*time.Second {
		t.Fatalf("who stood still for longest was cut after %v", at)
	}
	if second.Load() != 0 || third.Load() != 0 {
		t.Fatal("more were cut than needed")
	}
	r.excess.Store(64 << 20)
	r.run(time.Second)
	if second.Load() == 0 || third.Load() != 0 {
		t.Fatal("pressure must cut who stands still, and nobody who moves")
	}
}

// Trap: -32003 and idle times. A connection is only looked at while something
// waits, and its minute begins with that.
func TestGuardStallIdleConnection(t *testing.T) {
	r := newStallRig(t)
	c, q, cut := r.client(100)
	q.taken.Add(100)
	c.end(100)
	if r.clock.ActiveTimers() > 1 {
		t.Errorf("%d timers", r.clock.ActiveTimers())
	}
	r.run(time.Hour)
	if r.clock.ActiveTimers() != 0 {
		t.Error("an idle watch ticks")
	}
	c.begin(1 << 20)
	r.run(50 * time.Second)
	if cut.Load() != 0 {
		t.Fatal("the idle hour counted as standing still")
	}
	c.end(1 << 20)
	r.run(time.Hour)
	if cut.Load() != 0 {
		t.Fatal("cut while nothing waited")
	}
}

func TestGuardStallManyWaitersOneConnection(t *testing.T) {
	r := newStallRig(t)
	c, _, cut := r.client(10)
	c.begin(20)
	c.end(10)
	r.run(65 * time.Second)
	if cut.Load() == 0 {
		t.Fatal("not cut although one write still waits")
	}
	first := cut.Load()
	c.end(20)
	c.begin(5)
	r.run(200 * time.Second)
	if cut.Load() != first {
		t.Fatal("cut twice")
	}
	defer func() {
		if recover() == nil {
			t.Error("end without begin did not panic")
		}
	}()
	c.end(5)
	c.end(5)
}

func TestGuardStallNil(t *testing.T) {
	var w *stallWatch
	c := w.conn(nil, nil)
	c.begin(1)
	c.end(1)
	w.stop()
	if w.stalled() != 0 {
		t.Error("nil watch has cut")
	}
}

// The decision against the obvious model, which remembers every second.
func TestGuardStallModel(t *testing.T) {
	const seed = 31
	rng := rand.New(rand.NewSource(seed))
	for round := 0; round < 300; round++ {
		var (
			start   = mclock.AbsTime(rng.Int63n(int64(time.Hour)))
			left    = uint64(rng.Intn(1000))
			s       = newStallState(start, left)
			history = []uint64{left}
			still   = 0
			busy    = rng.Intn(4000)
		)
		for sec := 1; sec < 400; sec++ {
			still++
			if n := rng.Intn(busy + 1); rng.Intn(3) == 0 && n > 0 {
				left += uint64(n)
				still = 0
			}
			if rng.Intn(100) == 0 {
				busy = rng.Intn(4000)
			}
			history = append(history, left)
			now := start + mclock.AbsTime(sec)*mclock.AbsTime(time.Second)
			s.observe(now, left)
			got := s.judge(now)

			in := func(window int) uint64 {
				return left - history[max(0, sec-window)]
			}
			switch {
			case sec >= 60 && in(60) >= stallBytes || sec < 60:
				if got == stallYes {
					t.Fatalf("seed %d round %d second %d: cut although %d bytes left in 60 s", seed, round, sec, in(60))
				}
			case sec >= 66 && in(66) < stallBytes:
				if got != stallYes {
					t.Fatalf("seed %d round %d second %d: not cut although only %d bytes left in 66 s", seed, round, sec, in(66))
				}
			}
			if got == stallNo && still >= 10 || got == stallIfFull && still < 10 {
				t.Fatalf("seed %d round %d second %d: verdict %d after %d s without progress", seed, round, sec, got, still)
			}
		}
	}
}

// What the kernel says about a real connection: the client's reading moves it,
// bytes that only fill buffers stop.
func TestGuardStallKernelQueue(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	boundSendBuffer(server)
	q := newKernelQueue(&wrappedConn{server})
	if q.left() != 0 && q.left() > 1 {
		t.Fatalf("%d bytes have left a new connection", q.left())
	}
	const total = 8 << 20
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; n < total; n += 64 << 10 {
			m, err := server.Write(make([]byte, 64<<10))
			q.wrote(int64(m))
			if err != nil {
				return
			}
		}
	}()
	buf := make([]byte, total)
	for got := 0; got < total; {
		n, err := client.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		got += n
		if left := q.left(); left > total+(64<<10) {
			t.Fatalf("%d bytes left, %d were written", left, total)
		}
	}
	<-done
	if left := q.left(); left+(64<<10) < total/2 {
		t.Errorf("client has read %d bytes, %d are said to have left", total, left)
	}
}

type wrappedConn struct{ net.Conn }

func (w *wrappedConn) NetConn() net.Conn { return w.Conn }

func BenchmarkGuardStallBeginEnd(b *testing.B) {
	watch, _ := newStallWatch(mclock.System{}, func() int64 { return 0 })
	defer watch.stop()
	c := watch.conn(new(fakeQueue), func() {})
	b.ReportAllocs()
	for b.Loop() {
		c.begin(1000)
		c.end(1000)
	}
}

// sizedConn notes what send buffer it is given.
type sizedConn struct {
	net.Conn
	size int
}

func (c *sizedConn) SetWriteBuffer(size int) error {
	c.size = size
	return nil
}

// The kernel's send buffer of a stream is bounded, whatever wraps the connection.
func TestGuardSendBufferOfStreams(t *testing.T) {
	conn := new(sizedConn)
	boundSendBuffer(&guardConn{Conn: &lingerConn{Conn: &trackedConn{Conn: conn}}})
	require.Equal(t, streamSendBuffer, conn.size)
	boundSendBuffer(new(pipeConn)) // has none
}

// pipeConn is a connection that has no buffer.
type pipeConn struct{ net.Conn }
