// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
	"github.com/stretchr/testify/require"
)

func h2Frame(kind byte, id uint32, payload int) []byte {
	b := []byte{byte(payload >> 16), byte(payload >> 8), byte(payload), kind, 0}
	b = binary.BigEndian.AppendUint32(b, id)
	return append(b, make([]byte, payload)...)
}

// Attack 40: nothing but pairs of HEADERS and RST_STREAM, in any split.
func TestResetRapid(t *testing.T) {
	for _, split := range []int{1, 7, 9, 1000} {
		stream := []byte(h2Preface)
		for i := range uint32(1000) {
			stream = append(stream, h2Frame(h2FrameHeaders, 2*i+1, 40)...)
			stream = append(stream, h2Frame(h2FrameReset, 2*i+1, 4)...)
		}
		var f resetFollower
		fed := 0
		for fed < len(stream) && !f.feed(stream[fed:min(fed+split, len(stream))], 0) {
			fed += split
		}
		require.EqualValues(t, resetBurst+1, f.resets)
	}
}

// Clients that give up on some of their calls, or on all of them now and then, are
// ordinary.
func TestResetOrdinaryClients(t *testing.T) {
	var (
		f   resetFollower
		now mclock.AbsTime
		id  uint32 = 1
	)
	open := func() { f.feed(h2Frame(h2FrameHeaders, id, 10), now); id += 2 }
	require.False(t, f.feed([]byte(h2Preface), now))
	for i := range 100_000 { // one in three, at any speed
		open()
		if i%3 == 0 {
			require.False(t, f.feed(h2Frame(h2FrameReset, id-2, 4), now))
		}
	}
	for range 50 { // a page is closed every ten seconds
		now = now.Add(10 * time.Second)
		for range h2Streams {
			open()
			require.False(t, f.feed(h2Frame(h2FrameReset, id-2, 4), now))
		}
	}
}

func TestResetHTTP1(t *testing.T) {
	var f resetFollower
	require.False(t, f.feed([]byte("POST / HTTP/1.1\r\n"), 0))
	require.Equal(t, resetOff, f.state)
	f = resetFollower{}
	require.False(t, f.feed([]byte("PRI"), 0))
	require.False(t, f.feed([]byte("X"), 0))
	require.Equal(t, resetOff, f.state)
}

func FuzzResetFollower(f *testing.F) {
	f.Add([]byte(h2Preface), uint8(1))
	f.Fuzz(func(t *testing.T, p []byte, step uint8) {
		p = append([]byte(h2Preface), p...)
		var whole, split resetFollower
		a := whole.feed(p, 0)
		b := false
		for rest := p; len(rest) > 0 && !b; {
			n := min(max(1, int(step)), len(rest))
			b = split.feed(rest[:n], 0)
			rest = rest[n:]
		}
		require.Equal(t, a, b)
		require.Equal(t, whole.resets, split.resets)
	})
}
