// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// instantEndpoint answers at once and allocates little, so that what the client costs is
// seen.
type instantEndpoint struct{}

func (instantEndpoint) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{
		Status:     "200 OK",
		StatusCode: http.StatusOK,
		Body:       io.NopCloser(strings.NewReader(`{"jsonrpc":"2.0","id":1,"result":"0x1"}`)),
		Request:    req,
	}, nil
}

func instantClient(t testing.TB, options ...ClientOption) *Client {
	t.Helper()
	options = append(options, WithHTTPClient(&http.Client{Transport: instantEndpoint{}}))
	c, err := DialOptions(context.Background(), "http://stub.invalid", options...)
	require.NoError(t, err)
	return c
}

// Without a governor the wrapper must not cost an allocation.
func TestGovernorNilAllocatesNothing(t *testing.T) {
	c := instantClient(t)
	var (
		ctx    = context.Background()
		result string
		arg    interface{} = "0x1"
	)
	// The process's other goroutines are counted too, and pools are emptied meanwhile: the
	// least of several runs is what the call itself takes.
	plain, guarded := math.Inf(1), math.Inf(1)
	for range 5 {
		plain = min(plain, testing.AllocsPerRun(200, func() { c.callContextUnguarded(ctx, &result, "eth_getBalance", arg) }))
		guarded = min(guarded, testing.AllocsPerRun(200, func() { c.CallContext(ctx, &result, "eth_getBalance", arg) }))
	}
	require.Equal(t, plain, guarded)
}

func TestGovernorAdmitAllocatesNothing(t *testing.T) {
	g := fastGovernor(t)
	ctx := context.Background()
	require.Zero(t, testing.AllocsPerRun(200, func() { g.admit(ctx, Foreground, 1, nil) }))
}

func BenchmarkGovernorAdmit(b *testing.B) {
	g := fastGovernor(b)
	ctx := context.Background()
	b.Run("serial", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			g.admit(ctx, Foreground, 1, nil)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				g.admit(ctx, Foreground, 1, nil)
			}
		})
	})
}

// BenchmarkGovernorClient compares upstream's call with that of a client without and with
// a governor when nothing waits.
func BenchmarkGovernorClient(b *testing.B) {
	var (
		ctx    = context.Background()
		result string
		arg    interface{} = "0x1"
	)
	b.Run("upstream", func(b *testing.B) {
		c := instantClient(b)
		b.ReportAllocs()
		for b.Loop() {
			c.callContextUnguarded(ctx, &result, "eth_getBalance", arg)
		}
	})
	b.Run("nil", func(b *testing.B) {
		c := instantClient(b)
		b.ReportAllocs()
		for b.Loop() {
			c.CallContext(ctx, &result, "eth_getBalance", arg)
		}
	})
	b.Run("governed", func(b *testing.B) {
		c := instantClient(b, WithGovernor(fastGovernor(b)), WithRetries(3))
		b.ReportAllocs()
		for b.Loop() {
			c.CallContext(ctx, &result, "eth_getBalance", arg)
		}
	})
	b.Run("merging", func(b *testing.B) {
		c := instantClient(b, WithGovernor(fastGovernor(b)), WithMergedReads())
		b.ReportAllocs()
		for b.Loop() {
			c.CallContext(ctx, &result, "eth_getBalance", arg)
		}
	})
}

// BenchmarkGovernorQueue is a call that waits, behind a thousand others.
func BenchmarkGovernorQueue(b *testing.B) {
	g, clock := simGovernor(b, GovernorConfig{Rate: 1e9, Burst: 1, MaxQueue: 2000})
	for i := 0; i < 1000; i++ {
		g.enter(context.Background(), GovernorClass(i%2), 1)
	}
	b.ReportAllocs()
	for b.Loop() {
		g.enter(context.Background(), Foreground, 1)
		clock.Run(1)
	}
}
