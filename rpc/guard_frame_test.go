// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
)

// clientFrame encodes a masked frame. extend asks for a longer length form than
// needed, 2 or 8 bytes, which peers may well send.
func clientFrame(opcode byte, fin bool, extend, payload int) []byte {
	b := []byte{opcode, 0x80}
	if fin {
		b[0] |= 0x80
	}
	switch {
	case extend == 8 || payload > 0xffff:
		b[1] |= 127
		b = binary.BigEndian.AppendUint64(b, uint64(payload))
	case extend == 2 || payload > 125:
		b[1] |= 126
		b = binary.BigEndian.AppendUint16(b, uint16(payload))
	default:
		b[1] |= byte(payload)
	}
	b = append(b, 0xde, 0xad, 0xbe, 0xef)
	for i := range payload {
		b = append(b, byte(i*7)|0x80) // looks like headers to whoever loses track
	}
	return b
}

// followAll feeds p in pieces of the given sizes and returns the lengths of the
// messages that ended.
func followAll(f *frameFollower, p []byte, sizes func() int) (ended []int64) {
	for len(p) > 0 {
		piece := p[:min(max(1, sizes()), len(p))]
		p = p[len(piece):]
		for len(piece) > 0 {
			n, ev := f.next(piece)
			piece = piece[n:]
			if ev == frameEnd {
				ended = append(ended, f.received)
			}
		}
	}
	return ended
}

// Random streams of messages, fragments and control frames, in any split.
func TestFrameFollowerModel(t *testing.T) {
	for seed := range uint64(200) {
		t.Logf("seed %d", seed)
		rnd := rand.New(rand.NewPCG(seed, 7))
		var (
			stream []byte
			want   []int64
		)
		ping := func() {
			if rnd.IntN(3) == 0 {
				stream = append(stream, clientFrame(8+byte(rnd.IntN(3)), true, 0, rnd.IntN(126))...)
			}
		}
		for range 1 + rnd.IntN(5) {
			var sum int64
			frames := 1 + rnd.IntN(4)
			for i := range frames {
				ping()
				size := []int{0, 1, 125, 126, 127, 65535, 65536, rnd.IntN(3000)}[rnd.IntN(8)]
				opcode := byte(0)
				if i == 0 {
					opcode = 1 + byte(rnd.IntN(2))
				}
				stream = append(stream, clientFrame(opcode, i == frames-1, []int{0, 2, 8}[rnd.IntN(3)], size)...)
				sum += int64(size)
			}
			want = append(want, sum)
		}
		ping()
		var f frameFollower
		most := 1 + rnd.IntN(2000)
		require.Equal(t, want, followAll(&f, stream, func() int { return 1 + rnd.IntN(most) }), "seed %d", seed)
		require.False(t, f.open)
	}
}

// FuzzFrameFollower: whatever comes, it ends, never counts more than was fed, and
// does not depend on the split.
func FuzzFrameFollower(f *testing.F) {
	f.Add(clientFrame(1, true, 0, 200), uint8(3))
	f.Add(append(clientFrame(1, false, 8, 5), clientFrame(9, true, 0, 3)...), uint8(1))
	f.Add([]byte{0x01, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, uint8(1))
	f.Fuzz(func(t *testing.T, p []byte, step uint8) {
		var whole, split frameFollower
		a := followAll(&whole, p, func() int { return len(p) })
		b := followAll(&split, p, func() int { return int(step) })
		require.Equal(t, a, b)
		require.Equal(t, whole, split)
		var sum int64
		for _, n := range a {
			sum += n
		}
		require.LessOrEqual(t, sum, int64(len(p)))
		require.GreaterOrEqual(t, whole.declared, int64(0))
	})
}

func newTestIntake(b *byteBudget, clock *mclock.Simulated) (*intake, *[]time.Time) {
	cuts := new([]time.Time)
	in := &intake{budget: b, key: budgetKey(1), clock: clock, idle: 10 * time.Second}
	in.cut = func(t time.Time) error { *cuts = append(*cuts, t); return nil }
	return in, cuts
}

// receive lets the intake read p, in the pieces that it allows.
func receive(t *testing.T, in *intake, p []byte) error {
	t.Helper()
	for len(p) > 0 {
		n, err := in.before(len(p))
		if err != nil {
			return err
		}
		if err := in.after(p[:n]); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

func TestIntakeChargesOneStepAhead(t *testing.T) {
	b := mustBudget(t, 64<<20, 16<<20, budgetStep)
	in, _ := newTestIntake(b, new(mclock.Simulated))
	msg := clientFrame(1, true, 0, 1<<20)
	for off := 0; off < len(msg); {
		n, err := in.before(len(msg) - off)
		require.NoError(t, err)
		require.NoError(t, in.after(msg[off:off+n]))
		off += n
		st := b.stats()
		require.LessOrEqual(t, st.InUse, in.follow.received+budgetStep)
		require.GreaterOrEqual(t, st.InUse, min(in.follow.received, 1<<20))
	}
	require.EqualValues(t, 1<<20, b.stats().InUse, "held until somebody takes it")
	mem := in.next()
	require.EqualValues(t, 1<<20, mem.held())
	require.Nil(t, in.next())
	mem.close()
	require.Zero(t, b.stats().InUse)
}

// Several small messages in one read are charged each by itself, exactly.
func TestIntakePipelinedMessages(t *testing.T) {
	b := mustBudget(t, 64<<20, 16<<20, budgetStep)
	in, _ := newTestIntake(b, new(mclock.Simulated))
	var stream []byte
	for i := range 20 {
		stream = append(stream, clientFrame(1, true, 0, 10+i)...)
	}
	require.NoError(t, receive(t, in, stream))
	for i := range 20 {
		mem := in.next()
		require.EqualValues(t, 10+i, mem.held())
		mem.close()
	}
	require.Zero(t, b.stats().InUse)
}

// Trap: clients that only ping charged until they are refused.
func TestIntakePingsAreFree(t *testing.T) {
	b := mustBudget(t, 64<<20, 16<<20, budgetStep)
	in, cuts := newTestIntake(b, new(mclock.Simulated))
	for range 10_000 {
		require.NoError(t, receive(t, in, clientFrame(9, true, 0, 125)))
	}
	require.Zero(t, b.stats().High)
	require.Empty(t, *cuts)
	require.Zero(t, in.clock.(*mclock.Simulated).ActiveTimers())
}

// Trap: a message kept alive by pings, or by empty frames, in its middle.
func TestIntakePingsAreNoProgress(t *testing.T) {
	for _, filler := range [][]byte{clientFrame(9, true, 0, 5), clientFrame(0, false, 0, 0)} {
		clock := new(mclock.Simulated)
		in, cuts := newTestIntake(mustBudget(t, 64<<20, 16<<20, budgetStep), clock)
		require.NoError(t, receive(t, in, clientFrame(1, false, 0, 1000)))
		var err error
		for i := 0; err == nil && i < 100; i++ {
			if _, err = in.before(100); err == nil {
				clock.Run(time.Second)
				err = in.after(filler)
			}
		}
		require.Equal(t, errMessageIdle, err)
		require.Equal(t, []time.Time{longPast}, *cuts)
		require.Equal(t, 10*time.Second, time.Duration(clock.Now()))
		code, _, ok := in.refusal()
		require.True(t, ok)
		require.Equal(t, websocket.ClosePolicyViolation, code)
		require.Error(t, in.setDeadline(time.Time{}, func(time.Time) error { t.Fatal("revived"); return nil }))
		in.close()
		require.Zero(t, in.budget.stats().InUse)
	}
}

func TestIntakeMessageMustFinish(t *testing.T) {
	clock := new(mclock.Simulated)
	in, _ := newTestIntake(mustBudget(t, 64<<20, 16<<20, budgetStep), clock)
	require.NoError(t, receive(t, in, clientFrame(1, false, 0, 1)))
	var err error
	for i := 0; err == nil && i < 100; i++ {
		if _, err = in.before(100); err == nil {
			clock.Run(5 * time.Second)
			err = in.after(clientFrame(0, false, 0, 1))
		}
	}
	require.Equal(t, errMessageSlow, err)
	require.Equal(t, messageTime, time.Duration(clock.Now()))
	in.close()
}

// Time during which the server does not read is not the client's.
func TestIntakeOwnPausesDoNotCount(t *testing.T) {
	clock := new(mclock.Simulated)
	in, cuts := newTestIntake(mustBudget(t, 64<<20, 16<<20, budgetStep), clock)
	require.NoError(t, receive(t, in, clientFrame(1, false, 0, 10)))
	_, err := in.before(10)
	require.NoError(t, err)
	clock.Run(time.Second)
	require.NoError(t, in.after(clientFrame(9, true, 0, 0)))
	clock.Run(time.Hour) // busy
	_, err = in.before(10)
	require.NoError(t, err)
	clock.Run(8 * time.Second)
	require.NoError(t, in.after(clientFrame(0, true, 0, 10)))
	require.Empty(t, *cuts)
	clock.Run(time.Hour)
	require.Empty(t, *cuts, "no message, no clock")
	in.close()
	require.Zero(t, clock.ActiveTimers())
}

func TestIntakeRefusedOverBudget(t *testing.T) {
	b := mustBudget(t, 4*budgetStep, budgetStep, budgetStep)
	in, _ := newTestIntake(b, new(mclock.Simulated))
	err := receive(t, in, clientFrame(1, true, 0, 4*budgetStep))
	var full *budgetError
	require.ErrorAs(t, err, &full)
	require.Zero(t, b.stats().InUse)
	code, reason, ok := in.refusal()
	require.True(t, ok)
	require.Equal(t, websocket.CloseTryAgainLater, code)
	require.LessOrEqual(t, len(reason), 123, "fits a close frame")
	_, err = in.before(10)
	require.Error(t, err, "for good")
	in.close()
}

func TestIntakeDisplaced(t *testing.T) {
	b := mustBudget(t, 4*budgetStep, 0, 0)
	in, cuts := newTestIntake(b, new(mclock.Simulated))
	other, _ := newTestIntake(b, new(mclock.Simulated))
	half := clientFrame(1, true, 0, 3*budgetStep)[:2*budgetStep]
	require.NoError(t, receive(t, in, half[:budgetStep]))
	require.NoError(t, receive(t, other, half))
	polite := b.open(budgetKey(2), nil)
	require.NoError(t, polite.grow(budgetStep+1))
	require.Len(t, *cuts, 1, "the slower of the two")
	require.Error(t, in.after(half[budgetStep:]))
	code, _, _ := in.refusal()
	require.Equal(t, websocket.CloseTryAgainLater, code)
	in.close()
	other.close()
	polite.close()
	require.Zero(t, b.stats().InUse)
}

func BenchmarkIntakeSmallMessage(b *testing.B) {
	in, _ := newTestIntake(mustBudget(b, 64<<20, 16<<20, budgetStep), new(mclock.Simulated))
	in.clock = mclock.System{}
	frame := clientFrame(1, true, 0, 120)
	b.ReportAllocs()
	for b.Loop() {
		in.before(1024)
		in.after(frame)
		in.next().close()
	}
}
