// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"errors"
	"io"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestStreamWindowModel drives a window by random steps beside two plain lists.
func TestStreamWindowModel(t *testing.T) {
	const seed = 42
	for run := range 200 {
		rnd := rand.New(rand.NewSource(seed + int64(run)))
		w := newStreamWindow(1 + rnd.Intn(4))
		w.maxAhead, w.maxBytes = 1+rnd.Intn(6), int64(1+rnd.Intn(40))
		var calls, others []int64 // sizes of what is ahead; a size tells a message apart
		var bytes int64
		inFlight, next := 0, int64(0)
		full := func() bool { return len(calls)+len(others) >= w.maxAhead || bytes >= w.maxBytes }
		paused := false // the reader waits for readAgain
		asleep := false // who starts calls waits for wake
		for range 300 {
			switch op := rnd.Intn(10); {
			case op < 4 && !full():
				next++
				m := streamMessage{calls: rnd.Intn(3) > 0, size: next}
				if m.calls && len(calls) == 0 && rnd.Intn(2) == 0 {
					if got, want := w.start(), inFlight < w.limit; got != want {
						t.Fatalf("seed %d: start %v, want %v", seed+run, got, want)
					} else if got {
						inFlight++
						break
					}
				}
				w.push(m)
				bytes += m.size
				if m.calls {
					calls = append(calls, m.size)
				} else {
					others = append(others, m.size)
				}
				paused = full()
			case op < 7:
				m, ok, err := w.pop()
				want := int64(0)
				if len(others) > 0 {
					want, others = others[0], others[1:]
				} else if len(calls) > 0 && inFlight < w.limit {
					want, calls = calls[0], calls[1:]
					inFlight++
				}
				if err != nil || ok != (want != 0) || m.size != want {
					t.Fatalf("seed %d: popped %d %v %v, want %d", seed+run, m.size, ok, err, want)
				}
				bytes -= want
				asleep = !ok
				if asleep {
					for len(w.wake) > 0 { // as who waits on it does, before it looks again
						<-w.wake
					}
				}
				if paused && !full() {
					select {
					case <-w.readAgain:
						paused = false
					default:
						t.Fatalf("seed %d: nobody told the reader", seed+run)
					}
				}
			default:
				if inFlight > 0 {
					inFlight--
					w.done()
				}
			}
			if w.inFlight != inFlight || w.inFlight > w.limit || w.bytes != bytes || w.full() != full() {
				t.Fatalf("seed %d: %d in flight, %d bytes, full %v; want %d, %d, %v",
					seed+run, w.inFlight, w.bytes, w.full(), inFlight, bytes, full())
			}
			if asleep && len(w.wake) == 0 && (len(others) > 0 || len(calls) > 0 && inFlight < w.limit) {
				t.Fatalf("seed %d: a message may start and nobody wakes who starts it", seed+run)
			}
		}
	}
}

// A client that left: nothing of what it had sent is started. A stream that was closed
// in one direction: all of it is.
func TestStreamWindowEnds(t *testing.T) {
	gone := errors.New("gone")
	for _, fail := range []bool{true, false} {
		w := newStreamWindow(1)
		w.start()
		w.push(streamMessage{calls: true, size: 1})
		if fail {
			w.fail(gone)
		} else {
			w.end(io.EOF)
			if _, ok, err := w.pop(); ok || err != nil {
				t.Fatalf("popped %v %v with all slots taken", ok, err)
			}
			w.done()
			if m, ok, err := w.pop(); !ok || err != nil || m.size != 1 {
				t.Fatalf("popped %v %v %v", m, ok, err)
			}
		}
		if _, ok, err := w.pop(); ok || err == nil {
			t.Fatalf("fail %v: popped %v %v", fail, ok, err)
		}
		w.done()
		if w.start() && fail {
			t.Fatal("started after the client had left")
		}
	}
}

func TestStreamWindowSlotReleasedTwice(t *testing.T) {
	w := newStreamWindow(1)
	w.start()
	w.done()
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	w.done()
}

// Attack 10 from 200 connections: a reader with many calls in flight lets others run
// before it starts the next one, and one with few does not.
func TestStreamReaderYields(t *testing.T) {
	yields := 0
	r := &streamReader{
		window:  newStreamWindow(100),
		inner:   func() ([]*jsonrpcMessage, bool, error) { return []*jsonrpcMessage{{Method: "eth_call"}}, false, nil },
		prepare: func([]*jsonrpcMessage, bool) {},
		charge:  func(bool) {},
		yield:   func() { yields++ },
	}
	for i := range 50 {
		_, _, err := r.read()
		require.NoError(t, err)
		require.Equal(t, max(0, i+1-yieldFlight), yields)
	}
	for r.window.inUse() >= yieldFlight {
		r.window.done()
	}
	yields = 0
	r.read()
	require.Zero(t, yields)
}
