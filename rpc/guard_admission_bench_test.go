// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
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
			c := gateCall{class: class, key: clientKey{1, 2, 3}, method: "eth_getBalance"}
			b.ReportAllocs()
			for b.Loop() {
				c.since, c.bound = 0, 0
				g.acquire(ctx, &c)
				c.release()
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
// all of them, and with 8, so that nearly every call waits. Both sides have the same
// number of permits, yield once with the permit held, and acquire under a context that
// can be cancelled, since requests have one. The gate does more in that time: it bounds
// the wait, for which it reads the clock twice, is fair to 16 clients, and keeps books;
// but it uses one record again and again, where the semaphore makes a waiter each time.
// waits/op is which part of the calls had to wait.
func BenchmarkAdmitContended(b *testing.B) {
	for _, limit := range []struct {
		name string
		n    int
	}{{"free", 640}, {"waiting", 8}} {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		b.Run(limit.name+"/gate", func(b *testing.B) {
			g := benchGate(b, limit.n)
			waits := contend(b, func(i int, waits *int) func() {
				c := gateCall{class: classNormal, key: clientKey{1, uint64(i), 3}, method: "eth_getBalance"}
				return func() {
					c.since, c.bound, c.waited = 0, 0, 0
					g.acquire(ctx, &c)
					if c.waited > 0 {
						*waits++
					}
					runtime.Gosched() // lets the others find the permit taken
					c.release()
				}
			})
			b.ReportMetric(waits, "waits/op")
		})
		b.Run(limit.name+"/semaphore", func(b *testing.B) {
			s := semaphore.NewWeighted(int64(limit.n))
			contend(b, func(int, *int) func() {
				return func() {
					s.Acquire(ctx, 1)
					runtime.Gosched()
					s.Release(1)
				}
			})
		})
	}
}

// contend shares the benchmark's iterations among 16 goroutines, and returns which part of
// them the workers say had to wait.
func contend(b *testing.B, worker func(i int, waits *int) func()) float64 {
	const workers = 16
	var wg sync.WaitGroup
	var total atomic.Int64
	b.ReportAllocs()
	b.ResetTimer()
	for i := range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			waits := 0
			work := worker(i, &waits)
			for range (b.N + workers - 1) / workers {
				work()
			}
			total.Add(int64(waits))
		}()
	}
	wg.Wait()
	return float64(total.Load()) / float64((b.N+workers-1)/workers*workers)
}

// BenchmarkRefuse is what a call costs that finds no place: the flood that the
// gate exists for.
func BenchmarkRefuse(b *testing.B) {
	g := benchGate(b, 1)
	g.setLimits(gateLimits{Concurrency: 1, Queue: 0, CPU: 1, Heavy: 1, Parked: 1})
	ctx := context.Background()
	held := &gateCall{class: classNormal, key: clientKey{1, 2, 3}}
	g.acquire(ctx, held)
	defer held.release()
	c := gateCall{class: classNormal, key: clientKey{1, 2, 3}, method: "eth_getBalance"}
	b.ReportAllocs()
	for b.Loop() {
		c.since, c.bound = 0, 0
		if why := g.acquire(ctx, &c); why != refusedFull {
			b.Fatal(why)
		}
	}
}

// BenchmarkAdmitBeside takes turns of a few milliseconds with the semaphore, so that
// what else runs on the machine meets both alike, and reports the lower quartile of each
// and of their ratio.
func BenchmarkAdmitBeside(b *testing.B) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, test := range []struct {
		name           string
		workers, limit int
		class          callClass
		oneClient      bool
	}{
		{"alone", 1, 640, classNormal, false},
		{"alone/compute", 1, 640, classCompute, false},
		{"free", 16, 640, classNormal, false},
		{"free/one-client", 16, 640, classNormal, true},
		{"waiting", 16, 8, classNormal, false},
	} {
		b.Run(test.name, func(b *testing.B) {
			g, s := benchGate(b, test.limit), semaphore.NewWeighted(int64(test.limit))
			pause := func() {}
			if test.workers > 1 {
				pause = runtime.Gosched // lets the others find the permit taken
			}
			const calls = 16 << 10
			turn := func(worker func(i int) func()) float64 {
				begun := time.Now()
				var wg sync.WaitGroup
				for i := range test.workers {
					work := worker(i)
					wg.Add(1)
					go func() {
						defer wg.Done()
						for range calls / test.workers {
							work()
						}
					}()
				}
				wg.Wait()
				return float64(time.Since(begun).Nanoseconds()) / calls
			}
			var gates, semaphores, ratios []float64
			for b.Loop() {
				gate := turn(func(i int) func() {
					c := gateCall{class: test.class, key: clientKey{1, uint64(i), 3}, method: "eth_getBalance"}
					if test.oneClient {
						c.key.lo = 0
					}
					return func() {
						c.since, c.bound = 0, 0
						g.acquire(ctx, &c)
						pause()
						c.release()
					}
				})
				semaphore := turn(func(int) func() {
					return func() {
						s.Acquire(ctx, 1)
						pause()
						s.Release(1)
					}
				})
				gates, semaphores, ratios = append(gates, gate), append(semaphores, semaphore), append(ratios, gate/semaphore)
			}
			quartile := func(v []float64) float64 { slices.Sort(v); return v[len(v)/4] }
			b.ReportMetric(quartile(gates), "gate-ns")
			b.ReportMetric(quartile(semaphores), "semaphore-ns")
			slices.Sort(ratios)
			b.ReportMetric(ratios[len(ratios)/2], "median-ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}
