// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/metrics"
	"github.com/stretchr/testify/require"
)

// Where nobody looks at metrics, a call costs no look-up; the histograms exist as they do
// upstream.
func TestGuardServeTimesUnseen(t *testing.T) {
	if metricsEnabled() {
		t.Skip("somebody looks")
	}
	method := fmt.Sprintf("test_servetime%d", time.Now().UnixNano())
	name := func(note string) string { return serveTimeHistName + "/" + method + "/" + note }
	observeServeTime(method, true, time.Second)
	require.NotNil(t, metrics.Get(name("success")))
	require.Nil(t, metrics.Get(name("failure")))
	observeServeTime(method, false, time.Second)
	require.NotNil(t, metrics.Get(name("failure")))
	require.Zero(t, testing.AllocsPerRun(100, func() {
		observeServeTime(method, true, time.Second)
		observeServeTime(method, false, time.Second)
	}))
}

// Whatever the order, each outcome of a method is unknown to exactly one caller.
func TestGuardServeTimesOnce(t *testing.T) {
	var (
		s     serveTimes
		wg    sync.WaitGroup
		mu    sync.Mutex
		first = make(map[string]int)
	)
	for range 8 {
		wg.Go(func() {
			for i := range 50 {
				for _, success := range []bool{true, false} {
					method := fmt.Sprint("m", i)
					if !s.known(method, success) {
						mu.Lock()
						first[fmt.Sprint(method, success)]++
						mu.Unlock()
					}
				}
			}
		})
	}
	wg.Wait()
	require.Len(t, first, 100)
	for what, n := range first {
		require.Equal(t, 1, n, what)
	}
}

func BenchmarkGuardServeTime(b *testing.B) {
	for name, update := range map[string]func(string, bool, time.Duration){
		"upstream": updateServeTimeHistogram,
		"guarded":  observeServeTime,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				update("test_servetime", true, time.Millisecond)
			}
		})
	}
}
