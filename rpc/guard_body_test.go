// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
	"github.com/stretchr/testify/require"
)

var testBodyConfig = bodyConfig{limit: 5 << 20, idle: 10 * time.Second, absolute: 29 * time.Second}

// Trap: charging by declared length lets 64 bytes pin 5 MiB.
func TestBodyStalledSenderPinsOneStep(t *testing.T) {
	src := newScriptedBody()
	src.pieces = []bodyPiece{{0, make([]byte, 64)}, {time.Hour, []byte{0}}}
	r := runBody(t, src, 5<<20)
	require.Equal(t, errBodyIdle, r.err)
	require.EqualValues(t, budgetStep, r.budget.stats().High)
	require.LessOrEqual(t, cap(r.kept.chunks[0].buf), 1<<10, "memory follows the bytes, not the header")
	r.mem.close()
	require.Zero(t, r.budget.stats().InUse)
}

// Trap: bytes below one step free until the end. 2000 connections that each
// withhold the last byte of 64 KiB would hold 128 MiB outside the books.
func TestBodyBelowOneStepIsCharged(t *testing.T) {
	for _, declared := range []int64{65535, 200, 1} {
		src := newScriptedBody()
		src.pieces = []bodyPiece{{0, make([]byte, declared-1)}, {time.Hour, []byte{0}}}
		r := runBody(t, src, declared)
		require.Equal(t, errBodyIdle, r.err)
		require.Equal(t, declared, r.budget.stats().High, "charged exactly")
		require.Equal(t, declared, r.mem.held(), "until it is closed")
	}
}

// Trap: budget reserved for connections that send nothing.
func TestBodyIdleConnectionHoldsNothing(t *testing.T) {
	b := mustBudget(t, 64<<20, 16<<20, budgetStep)
	for range 400 {
		b.open(budgetKey(1), func() {})
	}
	require.Zero(t, b.stats().InUse)
	require.Empty(t, b.clients)
}

// Trap: one byte every 9 s, renewed by a deadline of its own each time.
func TestBodyOneByteEvery9sEndsAtTheAbsoluteLimit(t *testing.T) {
	src := newScriptedBody()
	src.drip(1000, 1, 9*time.Second)
	r := runBody(t, src, 1000)
	require.Equal(t, errBodySlow, r.err)
	require.Equal(t, 29*time.Second, src.cutAt)
}

// The server's own deadline counts from before the headers, so that slow headers
// and a slow body do not add up; when it passes first, the answer is the same.
func TestBodyServerDeadlineIsASlowBody(t *testing.T) {
	src := newScriptedBody()
	src.pieces = []bodyPiece{{5 * time.Second, make([]byte, 10)}}
	src.err = os.ErrDeadlineExceeded
	r := runBody(t, src, 1000)
	require.Equal(t, errBodySlow, r.err)
	require.Empty(t, src.cuts)
}

// Trap: honest slow uploads. 1 MB at 50 KB/s takes 20 s.
func TestBodyHonestSlowUploadPasses(t *testing.T) {
	for _, declared := range []int64{1e6, -1} {
		src := newScriptedBody()
		src.drip(1e6, 5000, 100*time.Millisecond)
		r := runBody(t, src, declared)
		require.NoError(t, r.err)
		require.Equal(t, 20*time.Second, r.took)
		require.EqualValues(t, 1e6, r.mem.held())
	}
}

// Trap: a pause just under the bound, over and over, is no stall.
func TestBodyIdleCountsFromTheLastByte(t *testing.T) {
	src := newScriptedBody()
	src.drip(3, 1, 9999*time.Millisecond-time.Second)
	r := runBody(t, src, 3)
	require.NoError(t, r.err)
	require.Empty(t, src.cuts)
}

// Trap: a timer that fires late cuts the next request on the same connection.
func TestBodyLateTimerLeavesTheNextReadAlone(t *testing.T) {
	src := newScriptedBody()
	w := watchBody(context.Background(), src.clock, testBodyConfig, src.setReadDeadline)
	require.NoError(t, w.stop())
	src.clock.Run(time.Minute)
	w.fired()
	w.fail(errBodyIdle)
	require.Empty(t, src.cuts)
}

// The last byte and the timer in one moment: the deadline has been set, so the
// body must count as cut, or its method runs on a connection that is dead.
func TestBodyCutAtTheLastByteSticks(t *testing.T) {
	src := newScriptedBody()
	w := watchBody(context.Background(), src.clock, testBodyConfig, src.setReadDeadline)
	n, err := w.readFrom(readerFunc(func(p []byte) (int, error) {
		src.clock.Run(10 * time.Second) // fires between the socket's read and ours
		return copy(p, "x"), io.EOF
	}), make([]byte, 1))
	require.Equal(t, 1, n)
	require.Equal(t, errBodyIdle, err)
	require.Equal(t, errBodyIdle, w.stop())
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestBodyEndsAtShutdown(t *testing.T) {
	src := newScriptedBody()
	src.pieces = []bodyPiece{{3 * time.Second, []byte{1}}}
	ctx, cancel := context.WithCancelCause(context.Background())
	w := watchBody(ctx, src.clock, testBodyConfig, src.setReadDeadline)
	cancel(errBodyShutdown)
	_, err := readBody(src, 10, testBodyConfig, nil, w)
	require.Equal(t, errBodyShutdown, err)
	w.stop()
}

func TestBodyDisplacedTransferIsCut(t *testing.T) {
	src := newScriptedBody()
	b := mustBudget(t, 4*budgetStep, 0, 0)
	w := watchBody(context.Background(), src.clock, testBodyConfig, src.setReadDeadline)
	cause := &budgetError{Wanted: 5 << 20, Limit: 4 * budgetStep}
	mem := b.open(budgetKey(1), func() { w.fail(cause) })
	second := b.open(budgetKey(1), nil)
	require.NoError(t, second.grow(2*budgetStep))
	polite := b.open(budgetKey(2), nil)
	step := make([]byte, budgetStep)
	_, err := readBody(readerFunc(func(p []byte) (int, error) {
		if len(src.cuts) > 0 {
			return 0, os.ErrDeadlineExceeded
		}
		if mem.held() == 2*budgetStep {
			require.NoError(t, polite.grow(2*budgetStep))
		}
		return copy(p, step), nil
	}), 5<<20, testBodyConfig, mem, w)
	require.Equal(t, cause, err)
	require.Equal(t, error(cause), w.stop())
	require.EqualValues(t, 4*budgetStep, b.stats().InUse)
}

func TestBodyTooLarge(t *testing.T) {
	cfg := bodyConfig{limit: 1000}
	for size, want := range map[int]error{999: nil, 1000: nil, 1001: errBodyTooLarge, 5000: errBodyTooLarge} {
		kept, err := readBody(bytes.NewReader(make([]byte, size)), -1, cfg, nil, nil)
		require.Equal(t, want, err, size)
		kept.Close()
	}
}

// Elements beyond the batch limit are never built, nor even kept.
func TestBodyBatchIsCutWhileItIsRead(t *testing.T) {
	b := mustBudget(t, 64<<20, 16<<20, budgetStep)
	mem := b.open(budgetKey(1), nil)
	body := append(append([]byte("[0"), bytes.Repeat([]byte(",0"), 2_500_000)...), ']')
	kept, err := readBody(bytes.NewReader(body), int64(len(body)), bodyConfig{limit: 5 << 20, maxBatch: 1000}, mem, nil)
	require.NoError(t, err)
	out, _ := io.ReadAll(kept)
	require.Len(t, out, 2*1001+1)
	require.EqualValues(t, budgetStep, b.stats().High)
}

func TestDrainReadsToTheEnd(t *testing.T) {
	src := newScriptedBody()
	src.drip(300_000, 1000, 10*time.Millisecond)
	require.NoError(t, drainBody(src, 1<<20, src.clock, src.setReadDeadline))
	require.Empty(t, src.cuts)
	require.Zero(t, src.clock.ActiveTimers())
}

func TestDrainEndsAfterItsTime(t *testing.T) {
	src := newScriptedBody()
	src.drip(300_000, 1000, 100*time.Millisecond)
	require.Equal(t, errBodySlow, drainBody(src, 1<<20, src.clock, src.setReadDeadline))
	require.Equal(t, []time.Time{longPast}, src.cuts)
	require.Less(t, src.clock.Now().Sub(0), drainTime+time.Second)
}

func TestDrainEndsAfterOneBody(t *testing.T) {
	src := newScriptedBody()
	src.drip(300_000, 1000, 0)
	require.Equal(t, errBodySlow, drainBody(src, 100_000, src.clock, src.setReadDeadline))
	require.Equal(t, []time.Time{longPast}, src.cuts)
}

// splitReader hands out a body in pieces whose sizes it takes from a list.
type splitReader struct {
	data    []byte
	splits  []byte
	next    int
	withEOF bool // the last piece comes with io.EOF
}

func (s *splitReader) Read(p []byte) (int, error) {
	if len(s.data) == 0 {
		return 0, io.EOF
	}
	if len(s.splits) > 0 {
		size := int(s.splits[s.next%len(s.splits)]) * 97 // 0 is allowed: a read of nothing
		s.next++
		if s.next > 1_000 {
			size = len(p)
		}
		p = p[:min(size, len(p))]
	}
	n := copy(p, s.data)
	if s.data = s.data[n:]; len(s.data) == 0 && s.withEOF && n > 0 {
		return n, io.EOF
	}
	return n, nil
}

// FuzzBodyReader: any split of any body, declared or not. The bytes that come out
// are those that went in, the charge is what the model says at its highest, the
// body's length at the end, and 0 once closed or refused.
func FuzzBodyReader(f *testing.F) {
	f.Add([]byte(`{"id":1}`), []byte{1}, uint8(0), true, uint32(1<<20))
	f.Add([]byte{}, []byte{0, 3}, uint8(1), false, uint32(1))
	f.Add([]byte(`[1,2,3]`), []byte{0, 200, 1}, uint8(200), true, uint32(100_000))
	f.Fuzz(func(t *testing.T, seed, splits []byte, times uint8, exact bool, limit uint32) {
		body := bytes.Repeat(seed, 1+int(times))
		cfg := bodyConfig{limit: 1 + int64(limit%(4<<20))}
		size := int64(len(body))
		declared := int64(-1)
		if exact && size <= cfg.limit {
			declared = size
		}
		withEOF := len(splits)%2 == 1
		b := mustBudget(t, 8<<20, 1<<20, budgetStep)
		mem := b.open(budgetKey(1), nil)
		kept, err := readBody(&splitReader{data: body, splits: splits, withEOF: withEOF}, declared, cfg, mem, nil)

		steps := size / budgetStep // whole steps that were filled
		if size%budgetStep != 0 || !withEOF || size == 0 {
			steps++
		}
		high := min(steps*budgetStep, cfg.limit)
		if declared >= 0 {
			high = size
		}
		require.Equal(t, high, b.stats().High)
		if size > cfg.limit {
			require.Equal(t, errBodyTooLarge, err)
		} else {
			require.NoError(t, err)
			require.Equal(t, size, mem.held())
			require.Equal(t, size, kept.size())
			out, err := io.ReadAll(kept)
			require.NoError(t, err)
			require.True(t, bytes.Equal(body, out))
		}
		kept.Close()
		mem.close()
		require.Zero(t, b.stats().InUse)

		// The same under a budget that is too small by a byte.
		if high > 1 {
			b := mustBudget(t, high-1, 0, budgetStep)
			mem := b.open(budgetKey(1), nil)
			kept, err := readBody(&splitReader{data: body, splits: splits, withEOF: withEOF}, declared, cfg, mem, nil)
			var be *budgetError
			require.True(t, errors.As(err, &be))
			require.Zero(t, b.stats().InUse)
			kept.Close()
			mem.close()
		}
	})
}

func BenchmarkBodyRead(b *testing.B) {
	for name, size := range map[string]int{"200B": 200, "1MiB": 1 << 20} {
		body := make([]byte, size)
		budget := mustBudget(b, 256<<20, 64<<20, budgetStep)
		cfg := bodyConfig{limit: 5 << 20, idle: 10 * time.Second, absolute: 29 * time.Second, maxBatch: 1000}
		b.Run(name+"/guard", func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for b.Loop() {
				w := watchBody(context.Background(), mclock.System{}, cfg, func(time.Time) error { return nil })
				mem := budget.open(budgetKey(1), nil)
				kept, err := readBody(bytes.NewReader(body), int64(size), cfg, mem, w)
				if err != nil || w.stop() != nil {
					b.Fatal(err)
				}
				readAllBody(kept, size)
				mem.close()
			}
		})
		b.Run(name+"/stock", func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for b.Loop() {
				readAllBody(io.LimitReader(bytes.NewReader(body), 5<<20), size)
			}
		})
	}
}

// TestGuardTransferStaysWithItsTimer: a timer looks at the watches that were due when
// it fired, whoever has them by then, and writes their places under its own lock. A
// watch that passed to another guard's timer would have its place guarded by two.
func TestGuardTransferStaysWithItsTimer(t *testing.T) {
	var a, b bodyTimer
	for range 100 {
		transfer := a.transfer()
		a.recycle(transfer)
		require.NotSame(t, transfer, b.transfer())
	}
}
