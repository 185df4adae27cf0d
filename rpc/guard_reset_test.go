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

// The same by the server's hand: the client sends HEADERS and a frame that has the server
// reset the stream, in any split.
func TestResetByTheServer(t *testing.T) {
	reset := func(id, code uint32) []byte {
		return binary.BigEndian.AppendUint32(h2Frame(h2FrameReset, id, 4)[:9], code)
	}
	for code, ends := range map[uint32]bool{1: true, 3: true, 6: true, 0: false, 5: false, 7: false, 8: false} {
		for _, split := range []int{1, 7, 13, 1000} {
			var f resetFollower
			require.False(t, f.feed([]byte(h2Preface), 0))
			require.True(t, f.sent.on.Load())
			ended := false
			sent := h2Frame(4, 0, 30) // settings
			for i := range uint32(1000) {
				ended = ended || f.feed(h2Frame(h2FrameHeaders, 2*i+1, 40), 0) || f.feed(h2Frame(8, 2*i+1, 4), 0)
				sent = append(sent, h2Frame(0, 2*i+1, 20)...)
				sent = append(sent, reset(2*i+1, code)...)
				for len(sent) >= split {
					f.sent.feed(sent[:split])
					sent = sent[split:]
				}
			}
			require.Equal(t, ends, ended, "code %d in pieces of %d", code, split)
		}
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
