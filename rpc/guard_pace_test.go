// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSlowTransfer(t *testing.T) {
	for _, c := range []struct {
		rate, size int64
		slow       bool
	}{
		{2048, 20_000_000, true}, {20_000, 20_000_000, true}, {50_000, 20_000_000, false}, {200_000, 20_000_000, false},
		{17_000, 2_000_000, false}, {50_000, 2_000_000, false}, {2048, 70_000, true}, {200_000, 256 << 20, true},
	} {
		require.Equal(t, c.slow, slowTransfer(c.rate, c.size), "%d B/s, %d bytes", c.rate, c.size)
	}
}

// The pace of a client is known while something waits for it, from 10 s on, and is
// nobody's once the wait is over.
func TestGuardStallPace(t *testing.T) {
	r := newStallRig(t)
	c, q, _ := r.client(20 << 20)
	for range 10 {
		q.taken.Add(50_000)
		r.run(time.Second)
		require.EqualValues(t, -1, c.pacedOr(-1), "too early")
		require.False(t, r.watch.anyPace())
	}
	for range 60 {
		q.taken.Add(50_000)
		r.run(time.Second)
		require.InDelta(t, 50_000, c.pacedOr(-1), 100)
		require.True(t, r.watch.anyPace())
	}
	for range 15 {
		r.run(time.Second)
	}
	require.EqualValues(t, 0, c.pacedOr(-1), "it has stopped")
	c.end(20 << 20)
	require.EqualValues(t, -1, c.pacedOr(-1), "nothing waits")
	c.begin(1 << 20)
	require.EqualValues(t, -1, c.pacedOr(-1), "another wait")
	r.run(2 * time.Second)
	require.False(t, r.watch.anyPace())
	require.EqualValues(t, -1, (*stallConn)(nil).pacedOr(-1))
}

// Trap: what the kernel does in gaps must not look like a slow client. 50 KB/s that
// arrive once in 9 s are still 50 KB/s in every window.
func TestTrapSteadyReaderWithGapsIsNotSlow(t *testing.T) {
	r := newStallRig(t)
	c, q, _ := r.client(20 << 20)
	for i := range 200 {
		if i%9 == 8 {
			q.taken.Add(450_000)
		}
		r.run(time.Second)
		if rate, known := c.pace(); known && slowTransfer(rate, 20<<20) {
			t.Fatalf("slow at %d s: %d B/s", i, rate)
		}
	}
}

func (c *stallConn) pacedOr(unknown int64) int64 {
	if rate, known := c.pace(); known {
		return rate
	}
	return unknown
}
