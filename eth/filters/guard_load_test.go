// SPDX-License-Identifier: LGPL-3.0-or-later

package filters

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/rpc"
)

// loadService stands in for eth_getLogs, which loads a block.
type loadService struct{ load func(context.Context) }

func (s loadService) GetLogs(ctx context.Context) int { s.load(ctx); return 0 }

// TestGuardFewBlocksAreLoadedAtOnce: however many queries look into blocks, no more than
// blockLoads has room for load one at a time, and all of them get their turn.
func TestGuardFewBlocksAreLoadedAtOnce(t *testing.T) {
	var (
		queries      = 4 * cap(blockLoads)
		loading, top atomic.Int64
		began        = make(chan struct{}, queries)
		goOn         = make(chan struct{})
		done         sync.WaitGroup
	)
	guard, err := rpc.NewGuard(rpc.DefaultGuardConfig, rpc.GuardEnv{Procs: 2, HTTPBodyLimit: 5 << 20})
	require.NoError(t, err)
	srv := newPlainServer()
	srv.SetGuard(guard)
	defer srv.Stop()
	require.NoError(t, srv.RegisterName("eth", loadService{func(ctx context.Context) {
		_, err := meteredLoad(ctx, func() ([]*types.Log, error) {
			for n := loading.Add(1); ; {
				if old := top.Load(); n <= old || top.CompareAndSwap(old, n) {
					break
				}
			}
			began <- struct{}{}
			<-goOn
			loading.Add(-1)
			return nil, nil
		})
		require.NoError(t, err)
	}}))
	for range queries {
		client := rpc.DialInProc(srv)
		defer client.Close()
		done.Go(func() { require.NoError(t, client.Call(nil, "eth_getLogs")) })
	}
	for range cap(blockLoads) {
		<-began
	}
	select {
	case <-began:
		t.Error("one more loads a block")
	case <-time.After(20 * time.Millisecond):
	}
	close(goOn)
	done.Wait()
	require.Equal(t, int64(cap(blockLoads)), top.Load(), "blocks loaded at once")
	require.Empty(t, blockLoads)
}
