// SPDX-License-Identifier: LGPL-3.0-or-later

package tracers

import (
	"context"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/rpc"
)

// blockService stands for a tracer: it begins traces as the workers of one call do.
type blockService struct {
	began, end chan struct{}
}

// TraceBlockByNumber is called as debug_traceBlockByNumber, which is heavy.
func (s *blockService) TraceBlockByNumber(ctx context.Context) int {
	const workers = 4
	for range workers {
		go func() {
			_, done, err := rpc.BeginTrace(context.Background(), ctx)
			if err != nil {
				panic(err)
			}
			s.began <- struct{}{}
			<-s.end
			done()
		}()
	}
	for i := range workers {
		<-s.began
		select {
		case <-s.began:
			return i + 1 // a second worker at work
		case <-time.After(20 * time.Millisecond):
		}
		s.end <- struct{}{}
	}
	return 0
}

// TestGuardTraceWorkers: however many workers a trace has, one runs at a time.
func TestGuardTraceWorkers(t *testing.T) {
	guard, err := rpc.NewGuard(rpc.DefaultGuardConfig, rpc.GuardEnv{Procs: 4, HTTPBodyLimit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	srv := newServer()
	srv.SetGuard(guard)
	defer srv.Stop()
	if err := srv.RegisterName("debug", &blockService{make(chan struct{}), make(chan struct{})}); err != nil {
		t.Fatal(err)
	}
	client := rpc.DialInProc(srv)
	defer client.Close()
	var overlap int
	if err := client.Call(&overlap, "debug_traceBlockByNumber"); err != nil {
		t.Fatal(err)
	}
	if overlap != 0 {
		t.Errorf("two workers of one call at once after %d transactions", overlap)
	}
}
