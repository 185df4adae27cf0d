// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"io"
	"os"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
	"github.com/stretchr/testify/require"
)

// scriptedBody is a sender on a simulated clock: before each piece it lets time
// pass, and a read that is cut short meanwhile fails as a socket's does.
type scriptedBody struct {
	clock  *mclock.Simulated
	pieces []bodyPiece
	cuts   []time.Time // deadlines set
	cutAt  time.Duration
	err    error // after the last piece; nil: io.EOF
}

type bodyPiece struct {
	after time.Duration
	data  []byte
}

func (s *scriptedBody) setReadDeadline(t time.Time) error {
	s.cuts = append(s.cuts, t)
	s.cutAt = time.Duration(s.clock.Now())
	return nil
}

func (s *scriptedBody) Read(p []byte) (int, error) {
	if len(s.pieces) == 0 {
		if s.err != nil {
			return 0, s.err
		}
		return 0, io.EOF
	}
	next := &s.pieces[0]
	for ; next.after > 0; next.after -= min(next.after, time.Second) {
		s.clock.Run(min(next.after, time.Second)) // timers see the second they fire in
	}
	if len(s.cuts) > 0 {
		return 0, os.ErrDeadlineExceeded
	}
	n := copy(p, next.data)
	if next.data = next.data[n:]; len(next.data) == 0 {
		s.pieces = s.pieces[1:]
	}
	return n, nil
}

// drip sends total bytes, size at a time with the given pause before each.
func (s *scriptedBody) drip(total, size int, pause time.Duration) {
	for ; total > 0; total -= size {
		s.pieces = append(s.pieces, bodyPiece{pause, make([]byte, min(size, total))})
	}
}

type bodyRun struct {
	src    *scriptedBody
	budget *byteBudget
	mem    *charge
	kept   *chunkBuffer
	err    error
	took   time.Duration
}

func runBody(t *testing.T, src *scriptedBody, declared int64) *bodyRun {
	t.Helper()
	r := &bodyRun{src: src, budget: mustBudget(t, 64<<20, 16<<20, budgetStep)}
	start := src.clock.Now()
	w := watchBody(context.Background(), src.clock, testBodyConfig, src.setReadDeadline)
	r.mem = r.budget.open(budgetKey(1), nil)
	r.kept, r.err = readBody(src, declared, testBodyConfig, r.mem, w)
	if cause := w.stop(); r.err != nil && cause != nil {
		require.Equal(t, cause, r.err)
	}
	r.took = src.clock.Now().Sub(start)
	for _, d := range src.cuts {
		require.Less(t, d.Unix(), int64(1000), "a future deadline replaces the server's own")
	}
	require.LessOrEqual(t, len(src.cuts), 1)
	require.Zero(t, src.clock.ActiveTimers(), "armed while the method runs")
	return r
}

func newScriptedBody() *scriptedBody { return &scriptedBody{clock: new(mclock.Simulated)} }
