// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
	"golang.org/x/sync/semaphore"
)

func benchGate(b *testing.B, limit int) *gate {
	b.Helper()
	g, err := newGate(gateConfig{
		gateLimits: gateLimits{Concurrency: limit, Queue: 8192, CPU: limit, Heavy: limit, Parked: limit},
		Wait:       time.Minute,
	}, mclock.System{})
	if err != nil {
		b.Fatal(err)
	}
	return g
}

// BenchmarkAdmit is one caller alone: admit and release, beside the weighted
// semaphore of x/sync and beside nothing at all.
func BenchmarkAdmit(b *testing.B) {
	ctx := context.Background()
	for _, class := range []callClass{classLight, classNormal, classCompute, classHeavy} {
		b.Run("gate/"+class.String(), func(b *testing.B) {
			g := benchGate(b, 640)
			r := gateRequest{class: class, key: clientKey{1, 2, 3}, method: "eth_getBalance"}
			b.ReportAllocs()
			for b.Loop() {
				p, _ := g.acquire(ctx, r)
				p.release()
			}
		})
	}
	b.Run("semaphore", func(b *testing.B) {
		s := semaphore.NewWeighted(640)
		b.ReportAllocs()
		for b.Loop() {
			s.Acquire(ctx, 1)
			s.Release(1)
		}
	})
}

// BenchmarkAdmitContended is 16 goroutines that do nothing else: with permits for
// all of them, and with 8, so that every one waits.
func BenchmarkAdmitContended(b *testing.B) {
	for _, limit := range []struct {
		name string
		n    int
	}{{"free", 640}, {"waiting", 8}} {
		ctx := context.Background()
		b.Run(limit.name+"/gate", func(b *testing.B) {
			g := benchGate(b, limit.n)
			contend(b, func(i int) func() {
				r := gateRequest{class: classNormal, key: clientKey{1, uint64(i), 3}, method: "eth_getBalance"}
				return func() {
					p, _ := g.acquire(ctx, r)
					runtime.Gosched() // lets the others find the permit taken
					p.release()
				}
			})
		})
		b.Run(limit.name+"/semaphore", func(b *testing.B) {
			s := semaphore.NewWeighted(int64(limit.n))
			contend(b, func(int) func() {
				return func() {
					s.Acquire(ctx, 1)
					runtime.Gosched()
					s.Release(1)
				}
			})
		})
	}
}

// contend shares the benchmark's iterations among 16 goroutines.
func contend(b *testing.B, worker func(i int) func()) {
	const workers = 16
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for i := range workers {
		work := worker(i)
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range (b.N + workers - 1) / workers {
				work()
			}
		}()
	}
	wg.Wait()
}

// BenchmarkRefuse is what a call costs that finds no place: the flood that the
// gate exists for.
func BenchmarkRefuse(b *testing.B) {
	g := benchGate(b, 1)
	g.setLimits(gateLimits{Concurrency: 1, Queue: 0, CPU: 1, Heavy: 1, Parked: 1})
	ctx := context.Background()
	held, _ := g.acquire(ctx, gateRequest{class: classNormal, key: clientKey{1, 2, 3}})
	defer held.release()
	r := gateRequest{class: classNormal, key: clientKey{1, 2, 3}, method: "eth_getBalance"}
	b.ReportAllocs()
	for b.Loop() {
		if _, why := g.acquire(ctx, r); why != refusedFull {
			b.Fatal(why)
		}
	}
}
