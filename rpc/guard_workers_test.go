// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"encoding/json"
	"math/rand"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// workRig is workers with a handler whose messages end when the test says so.
type workRig struct {
	pool callWorkers
	h    handler
	ends []chan struct{}
}

func newWorkRig() *workRig {
	return &workRig{h: handler{rootCtx: context.Background()}}
}

// begin starts a message.
func (r *workRig) begin() {
	end := make(chan struct{})
	r.ends = append(r.ends, end)
	r.h.callWG.Add(1)
	r.pool.run(streamWork{&r.h, &messageScope{}, func(*callProc) { <-end }})
}

// end ends one of those that run.
func (r *workRig) end(i int) {
	close(r.ends[i])
	r.ends = append(r.ends[:i], r.ends[i+1:]...)
}

func (r *workRig) resting() int {
	r.pool.mu.Lock()
	defer r.pool.mu.Unlock()
	return len(r.pool.idle)
}

// Streams open and close and messages begin and end in any order: each message runs at
// once, whatever rests is used first, never more rest than may, and none of them while no
// stream is open.
func TestGuardWorkersModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewSource(1))
		r := newWorkRig()
		streams, running, resting := 0, 0, 0
		for range 500 {
			switch op := rng.Intn(10); {
			case op == 0:
				r.pool.open()
				streams++
			case op == 1 && streams > 0 && rng.Intn(3) == 0:
				r.pool.closed()
				if streams--; streams == 0 {
					resting = 0
				}
			case op < 6:
				for range 1 + rng.Intn(2*idleWorkers) {
					r.begin()
					running++
					resting = max(0, resting-1)
				}
			default:
				for n := min(running, 1+rng.Intn(2*idleWorkers)); n > 0; n-- {
					r.end(rng.Intn(running))
					running--
					if streams > 0 {
						resting = min(resting+1, idleWorkers)
					}
				}
			}
			synctest.Wait()
			require.Equal(t, resting, r.resting())
			require.Len(t, r.ends, running)
		}
		for running > 0 {
			r.end(0)
			running--
		}
		r.h.callWG.Wait()
		for ; streams > 0; streams-- {
			r.pool.closed()
		}
	}) // fails if a worker is left
}

// Workers that are not needed end while a stream is open; one that is needed stays.
func TestGuardWorkersRetire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newWorkRig()
		r.pool.open()
		for range 20 {
			r.begin()
		}
		for range 20 {
			r.end(0)
		}
		synctest.Wait()
		rest := func() []*callWorker {
			r.pool.mu.Lock()
			defer r.pool.mu.Unlock()
			return slices.Clone(r.pool.idle)
		}
		require.Len(t, rest(), 20)
		w := rest()[19]
		for range 10 {
			time.Sleep(restTime / 2)
			r.begin()
			r.end(0)
			synctest.Wait()
		}
		require.Equal(t, []*callWorker{w}, rest())
		time.Sleep(2*restTime + 1)
		synctest.Wait()
		require.Empty(t, rest())
		r.begin()
		r.end(0)
		synctest.Wait()
		require.Len(t, rest(), 1)
		r.pool.closed()
	}) // fails if a worker is left
}

// Calls of a stream, and of the next one, run in the same goroutine as long as a stream
// is open; the last to close ends it, also if the server closes them.
func TestGuardWorkersServeStreams(t *testing.T) {
	g, err := NewGuard(DefaultGuardConfig, GuardEnv{Procs: 2, HTTPBodyLimit: defaultBodyLimit})
	require.NoError(t, err)
	srv := newPlainServer()
	srv.SetGuard(g)
	require.NoError(t, srv.RegisterName("test", newSlowService()))
	resting := func() int {
		g.workers.mu.Lock()
		defer g.workers.mu.Unlock()
		return len(g.workers.idle)
	}
	served := make(chan struct{}, 2)
	stream := func() (call func(), end func()) {
		here, there := net.Pipe()
		go func() {
			srv.ServeCodec(NewCodec(there), 0)
			served <- struct{}{}
		}()
		replies := json.NewDecoder(here)
		return func() {
			_, err := here.Write([]byte(`{"jsonrpc":"2.0","id":1,"method":"test_echo","params":["a"]}`))
			require.NoError(t, err)
			var reply json.RawMessage
			require.NoError(t, replies.Decode(&reply))
			require.Equal(t, `{"jsonrpc":"2.0","id":1,"result":"a"}`, string(reply))
			require.Eventually(t, func() bool { return resting() == 1 }, 5*time.Second, time.Millisecond)
		}, func() { here.Close() }
	}
	first, endFirst := stream()
	first()
	g.workers.mu.Lock()
	w := g.workers.idle[0]
	g.workers.mu.Unlock()
	first()
	second, endSecond := stream()
	second()
	endFirst()
	<-served
	second()
	g.workers.mu.Lock()
	require.Same(t, w, g.workers.idle[0])
	g.workers.mu.Unlock()
	endSecond()
	<-served
	require.Zero(t, resting())
	_, open := <-w.next
	require.False(t, open)

	last, _ := stream()
	last()
	srv.Stop()
	<-served
	require.Zero(t, resting())
}
