// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"errors"
	"math/rand"
	"sync"
	"sync/atomic"
	"testing"
)

func testReplyBooks(t testing.TB, limit, max int64) *replyBooks {
	t.Helper()
	books, err := newReplyBooks(limit, max)
	if err != nil {
		t.Fatal(err)
	}
	return books
}

func testReplyKey(n int) clientKey {
	return clientKey{lo: uint64(n), kind: 1}
}

func wantEmpty(t testing.TB, books *replyBooks) {
	t.Helper()
	if n := books.budget.stats().InUse; n != 0 {
		t.Errorf("%d bytes in use when idle", n)
	}
}

// Trap: check-then-act on an empty budget. 640 calls pass it together, then each
// makes 20 MB.
func TestGuardReplyTrapCheckThenAct(t *testing.T) {
	const limit, size = 512 << 20, 20 << 20
	books := testReplyBooks(t, limit, 256<<20)
	kind := kindOf("eth_getBlockByNumber", []byte(`["latest",true]`))

	var charges []*replyCharge
	admitted := 0
	for i := 0; i < 640; i++ {
		c, err := books.reserve(testReplyKey(i), kind)
		if err != nil {
			continue
		}
		admitted++
		charges = append(charges, c)
	}
	if admitted > limit*3/4/startLists {
		t.Fatalf("%d calls passed the empty budget", admitted)
	}
	done := 0
	for _, c := range charges {
		var err error
		for n := 0; n < size && err == nil; n += replyChunk {
			err = c.encode(replyChunk)
		}
		if err == nil {
			err = c.settle(size, nil)
		}
		if err == nil {
			done++
		}
		if n := books.budget.stats(); n.InUse > limit || n.Large > limit*3/4 {
			t.Fatalf("budget exceeded: %+v", n)
		}
	}
	if done == 0 || done > limit*3/4/size {
		t.Fatalf("%d replies of %d bytes fit", done, size)
	}
	// Now the method is known to need 20 MB, and such a call is refused before
	// it runs; small ones are not.
	var full *budgetError
	if _, err := books.reserve(testReplyKey(9999), kind); !errors.As(err, &full) || full.Wanted < size {
		t.Fatalf("with the large part full: %v", err)
	}
	small, err := books.reserve(testReplyKey(9999), kindOf("eth_getBalance", nil))
	if err != nil {
		t.Fatalf("a small call was refused: %v", err)
	}
	small.release()
	for _, c := range charges {
		c.release()
	}
	wantEmpty(t, books)
}

func TestGuardReplyTruedUp(t *testing.T) {
	books := testReplyBooks(t, 256<<20, 0)
	kind := kindOf("eth_getLogs", nil)
	c, err := books.reserve(testReplyKey(1), kind)
	if err != nil {
		t.Fatal(err)
	}
	if c.held() != startLists {
		t.Fatalf("%d bytes reserved", c.held())
	}
	if err := c.build(3 << 20); err != nil || c.held() < 3<<20 {
		t.Fatalf("building: %v, %d held", err, c.held())
	}
	if err := c.encode(2 << 20); err != nil || c.held() < 5<<20 {
		t.Fatalf("encoding: %v, %d held", err, c.held())
	}
	if err := c.settle(2<<20, nil); err != nil || c.held() != 2<<20+replyOverhead {
		t.Fatalf("settled: %v, %d held", err, c.held())
	}
	if got := books.history.expect(kind); got != 2<<20 {
		t.Errorf("next call is expected to need %d", got)
	}
	c.release()
	wantEmpty(t, books)
	defer func() {
		if recover() == nil {
			t.Error("second release did not panic")
		}
	}()
	c.release()
}

func TestGuardReplyMaxStopsBuilding(t *testing.T) {
	books := testReplyBooks(t, 256<<20, 8<<20)
	c, _ := books.reserve(testReplyKey(1), kindOf("eth_call", nil))
	stops := 0
	ctx := context.WithValue(context.Background(), callScopeKey{}, &callScope{meter: &BuildMeter{reply: c, stop: func() { stops++ }}})
	meter, built := BuildMeterFromContext(ctx), 0
	var err error
	for ; err == nil; built += 1000 {
		err = meter.Add(1000)
	}
	var coded Error
	if !errors.As(err, &coded) || coded.ErrorCode() != errcodeResponseTooLarge {
		t.Fatalf("error %v", err)
	}
	if built > 8<<20+2*replyStep {
		t.Errorf("%d bytes were built", built)
	}
	if c.held() != 0 {
		t.Errorf("%d bytes held after the refusal", c.held())
	}
	if meter.Add(1) != err || meter.Err() != err {
		t.Error("the refusal does not stick")
	}
	if stops != 1 {
		t.Errorf("the call was stopped %d times", stops)
	}
	c.release()
	if books.tooLarge.Load() != 1 || books.refused.Load() != 0 {
		t.Errorf("books: %d too large, %d refused", books.tooLarge.Load(), books.refused.Load())
	}
	wantEmpty(t, books)
}

func TestGuardReplyNilMeter(t *testing.T) {
	meter := BuildMeterFromContext(context.Background())
	if meter != nil || meter.Add(1<<40) != nil || meter.Hold(1<<40) != nil || meter.Err() != nil || !meter.JavaScript() {
		t.Error("a context without a meter counts")
	}
	var c *replyCharge
	if c.build(1) != nil || c.encode(1) != nil || c.settle(1, nil) != nil || c.abandon(1) != nil || c.err() != nil || c.held() != 0 {
		t.Error("a nil charge refuses")
	}
	c.release()
}

// Working memory counts against the budget, not against the bound of one reply,
// and what is given back can be used again.
func TestGuardReplyMeterHold(t *testing.T) {
	books := testReplyBooks(t, 64<<20, 8<<20)
	c, _ := books.reserve(testReplyKey(1), kindOf("eth_call", nil))
	meter := (&BuildMeter{reply: c, noJS: true})
	if meter.JavaScript() {
		t.Error("JavaScript allowed")
	}
	for i := 0; i < 100; i++ {
		if err := errors.Join(meter.Hold(30<<20), meter.Add(5<<20), meter.Add(-5<<20), meter.Hold(-30<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := meter.Hold(60 << 20); err == nil {
		t.Error("60 MiB beside 48 MiB of room")
	}
	c.release()
	wantEmpty(t, books)
}

// A waiting reply of the greediest client goes for a newcomer: its connection is
// cut, once, and one that is still being built stops.
func TestGuardReplyDisplaced(t *testing.T) {
	books := testReplyBooks(t, 256<<20, 0) // 192 MiB for large ones
	kind := kindOf("eth_call", nil)
	greedy := testReplyKey(1)
	var (
		charges []*replyCharge
		cuts    atomic.Int32
	)
	for i := 0; i < 9; i++ {
		c, err := books.reserve(greedy, kind)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.encode(20 << 20); err != nil {
			t.Fatal(err)
		}
		if err := c.settle(20<<20, cutFunc(func() { cuts.Add(1) })); err != nil {
			t.Fatal(err)
		}
		charges = append(charges, c)
	}
	other, err := books.reserve(testReplyKey(2), kindOf("eth_getBalance", nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := other.encode(20 << 20); err != nil {
		t.Fatalf("the newcomer does not fit: %v", err)
	}
	if cuts.Load() != 1 || charges[0].held() != 0 || charges[1].held() == 0 {
		t.Fatalf("%d connections cut", cuts.Load())
	}
	for _, c := range append(charges, other) {
		c.release()
	}
	wantEmpty(t, books)

	// One that is displaced between its encoding and its handing over is told.
	c, _ := books.reserve(greedy, kind)
	c.encode(1 << 20)
	c.evicted()
	if err := c.settle(1<<20, cutFunc(func() { t.Error("cut although told") })); err == nil {
		t.Error("a displaced reply is handed over")
	}
	c.release()
	wantEmpty(t, books)
}

// A dry run counts what it would have refused, and refuses nothing.
func TestGuardReplyDryRun(t *testing.T) {
	books := testReplyBooks(t, 64<<20, 4<<20)
	books.dryRun = true
	c, err := books.reserve(testReplyKey(1), kindOf("eth_call", nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.build(200<<20), c.encode(200<<20), c.encode(1), c.settle(200<<20, nil), c.err()); err != nil {
		t.Fatal(err)
	}
	if books.tooLarge.Load()+books.refused.Load() != 1 {
		t.Errorf("counted %d and %d times", books.tooLarge.Load(), books.refused.Load())
	}
	// The next one is expected to be as large, which does not fit.
	none, err := books.reserve(testReplyKey(1), kindOf("eth_call", nil))
	for i := 0; i < 20 && none != nil; i++ {
		none.settle(200<<20, nil)
		none.release()
		none, err = books.reserve(testReplyKey(1), kindOf("eth_call", nil))
	}
	if err != nil || none != nil {
		t.Errorf("reservation beyond the budget: %v", err)
	}
	none.release()
	c.release()
	wantEmpty(t, books)
}

// Random operations by many goroutines: never more than the limit, and nothing
// left at the end, whatever was refused, displaced or abandoned.
func TestGuardReplyModel(t *testing.T) {
	const seed, limit = 21, 64 << 20
	books := testReplyBooks(t, limit, 24<<20)
	var wg sync.WaitGroup
	for w := 0; w < 8; w++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rng := rand.New(rand.NewSource(seed + int64(w)))
			for i := 0; i < 2000; i++ {
				kind := replyKind{method: []string{"eth_call", "eth_getLogs", "debug_traceCall"}[rng.Intn(3)]}
				c, err := books.reserve(testReplyKey(rng.Intn(5)), kind)
				if err != nil {
					continue
				}
				meter := (&BuildMeter{reply: c})
				size := rng.Int63n(1 << uint(10+rng.Intn(16)))
				err = meter.Add(size / 2)
				if err == nil {
					err = c.encode(size)
				}
				switch {
				case err != nil || rng.Intn(10) == 0:
					c.abandon(100)
				default:
					c.settle(size, cutFunc(func() {}))
					c.progress()
				}
				if s := books.budget.stats(); s.InUse > limit || s.Large > limit*3/4 {
					t.Errorf("budget exceeded: %+v", s)
				}
				c.release()
			}
		}()
	}
	wg.Wait()
	wantEmpty(t, books)
}

func BenchmarkGuardReplyCharge(b *testing.B) {
	books := testReplyBooks(b, 256<<20, 0)
	key, kind := testReplyKey(1), kindOf("eth_call", nil)
	b.ReportAllocs()
	for b.Loop() {
		c, err := books.reserve(key, kind)
		if err != nil {
			b.Fatal(err)
		}
		c.encode(300)
		c.settle(300, nil)
		c.release()
	}
}

func BenchmarkGuardMeterAdd(b *testing.B) {
	books := testReplyBooks(b, 1<<40, 0)
	c, _ := books.reserve(testReplyKey(1), kindOf("eth_call", nil))
	meter := (&BuildMeter{reply: c})
	b.ReportAllocs()
	for b.Loop() {
		meter.Add(200)
	}
}

type cutFunc func()

func (f cutFunc) cutReply() { f() }
