// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"errors"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// endpointEnv names an HTTP endpoint of a hardened geth, best one with small limits such
// as --rpc.admission.concurrency 8 --rpc.admission.queue 16.
const endpointEnv = "RPCGUARD_TEST_ENDPOINT"

// TestGovernorAgainstEndpoint is TestGovernorAgainstSaturatedServer against a real node
// that others keep saturated: 1000 calls, all made at once, by a client without and one
// with a governor. The first sees refusals, the callers of the second see none.
func TestGovernorAgainstEndpoint(t *testing.T) {
	endpoint := os.Getenv(endpointEnv)
	if endpoint == "" {
		t.Skip("set " + endpointEnv + " to a hardened node that may be saturated")
	}
	// The others: calls of the EVM that loop for a while, as many as the node has
	// places and some more, asked again as soon as they are answered or refused.
	var (
		stop   = make(chan struct{})
		others sync.WaitGroup
		shed   atomic.Int64
	)
	loop := map[string]string{"to": "0x00000000000000000000000000000000000000cc", "gas": "0x200000"}
	code := map[string]map[string]string{loop["to"]: {"code": "0x5b600056"}}
	for i := 0; i < 32; i++ {
		others.Add(1)
		go func() {
			defer others.Done()
			c := dialEndpoint(t, endpoint)
			for {
				select {
				case <-stop:
					return
				default:
				}
				var refusal HTTPError
				if errors.As(c.Call(nil, "eth_call", loop, "latest", code), &refusal) {
					shed.Add(1)
					time.Sleep(5 * time.Millisecond)
				}
			}
		}()
	}
	defer others.Wait()
	defer close(stop)
	time.Sleep(time.Second)

	for _, governed := range []bool{false, true} {
		var options []ClientOption
		if governed {
			g, err := NewGovernor(GovernorConfig{Rate: 200, Burst: 4, MaxQueue: 1000, Backoff: 20 * time.Millisecond, MaxPause: time.Second})
			require.NoError(t, err)
			defer g.Close()
			options = []ClientOption{WithGovernor(g), WithRetries(1000)}
			defer func() { t.Logf("governor: %+v", g.Stats()) }()
		}
		var (
			c       = dialEndpoint(t, endpoint, options...)
			wg      sync.WaitGroup
			failed  atomic.Int64
			sample  atomic.Pointer[error]
			started = time.Now()
		)
		for i := 0; i < 1000; i++ {
			wg.Add(1)
			go func() {
				defer wg.Done()
				var balance string
				if err := c.Call(&balance, "eth_getBalance", loop["to"], "latest"); err != nil {
					failed.Add(1)
					sample.CompareAndSwap(nil, &err)
				}
			}()
		}
		wg.Wait()
		t.Logf("governed %v: %d of 1000 calls failed, done after %v; refusals that the others got so far: %d",
			governed, failed.Load(), time.Since(started).Round(time.Millisecond), shed.Load())
		if err := sample.Load(); err != nil {
			t.Logf("for example: %v", *err)
		}
		require.Equal(t, governed, failed.Load() == 0)
	}
}

func dialEndpoint(t *testing.T, endpoint string, options ...ClientOption) *Client {
	hc := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	c, err := DialOptions(context.Background(), endpoint, append(options, WithHTTPClient(hc))...)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close(); hc.CloseIdleConnections() })
	return c
}
