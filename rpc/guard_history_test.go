// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"
)

func TestGuardHistoryBuckets(t *testing.T) {
	// Every size lies in its bucket and above the one before it, and a bucket is
	// at most a quarter wider than its start.
	rng := rand.New(rand.NewSource(5))
	for i := 0; i < 200000; i++ {
		n := rng.Int63n(1 << (10 + rng.Intn(30)))
		b := sizeBucket(n)
		if n > bucketEnd(b) {
			t.Fatalf("size %d above the end %d of its bucket", n, bucketEnd(b))
		}
		if b > 0 {
			if low := bucketEnd(b - 1); n <= low || bucketEnd(b) > low+low/4 {
				t.Fatalf("size %d: bucket %d is %d..%d", n, b, low+1, bucketEnd(b))
			}
		}
	}
	for _, n := range []int64{startSmall, startLists, startBulk} {
		if got := bucketEnd(sizeBucket(n)); got != n {
			t.Errorf("start value %d is answered as %d", n, got)
		}
	}
	sizeBucket(-1)
	sizeBucket(1<<63 - 1)
}

// The start value is the first of the observations, and leaves with the twentieth.
func TestGuardHistoryStartValueIsFirstObservation(t *testing.T) {
	h := newReplyHistory()
	logs := kindOf("eth_getLogs", nil)
	if got := h.expect(logs); got != startLists {
		t.Fatalf("start value %d", got)
	}
	for i := 1; i < 19; i++ {
		h.observe(logs, 5000)
		if got := h.expect(logs); got != startLists {
			t.Fatalf("after %d replies: %d, the start value is forgotten too early", i, got)
		}
	}
	h.observe(logs, 5000)
	if got := h.expect(logs); got != 5<<10 {
		t.Fatalf("after 19 small replies %d, want %d", got, 5<<10)
	}
}

// A method that begins to answer 20 MB is expected to after a few of them.
func TestGuardHistoryFollowsGrowth(t *testing.T) {
	h := newReplyHistory()
	kind := kindOf("eth_call", nil)
	for i := 0; i < 5000; i++ {
		h.observe(kind, 100)
	}
	n := 0
	for ; h.expect(kind) < 20<<20; n++ {
		h.observe(kind, 20<<20)
	}
	if n > historyWindow/20+1 {
		t.Fatalf("%d large replies before one was expected", n)
	}
	for n = 0; h.expect(kind) > 1<<10; n++ {
		h.observe(kind, 100)
	}
	if n > 4*historyWindow {
		t.Fatalf("%d small replies before the large ones were forgotten", n)
	}
}

// The percentile against the obvious model, as long as nothing was halved.
func TestGuardHistoryModel(t *testing.T) {
	const seed = 7
	rng := rand.New(rand.NewSource(seed))
	for round := 0; round < 200; round++ {
		h, kind := newReplyHistory(), kindOf("eth_getProof", nil)
		all := []int64{startSmall}
		for i := 0; i < historyWindow-2; i++ {
			n := int64(1) << rng.Intn(28)
			n += rng.Int63n(n + 1)
			h.observe(kind, n)
			all = append(all, n)
			if i%50 != 0 {
				continue
			}
			sorted := slices.Sorted(slices.Values(all))
			want := sorted[len(sorted)-1-len(sorted)/20]
			if got := h.expect(kind); got != bucketEnd(sizeBucket(want)) {
				t.Fatalf("seed %d round %d: %d replies, got %d, 95th percentile is %d", seed, round, i, got, want)
			}
		}
	}
}

func TestGuardHistoryFullBlocksAreAnotherKind(t *testing.T) {
	for params, full := range map[string]bool{
		`["latest",true]`: true, `["0x1", true ]`: true, "[\"0x1\",true\n]": true,
		`["latest",false]`: false, `["latest"]`: false, ``: false, `[true`: true,
	} {
		if got := kindOf("eth_getBlockByNumber", []byte(params)); got.full != full {
			t.Errorf("%s: full %v", params, got.full)
		}
	}
	if kindOf("eth_call", []byte(`[true]`)).full {
		t.Error("only blocks have a full form")
	}
	h := newReplyHistory()
	for i := 0; i < 100; i++ {
		h.observe(kindOf("eth_getBlockByNumber", []byte(`["0x1",false]`)), 900)
	}
	if got := h.expect(kindOf("eth_getBlockByNumber", []byte(`["0x1",true]`))); got != startLists {
		t.Errorf("headers taught the history of full blocks: %d", got)
	}
}

func TestGuardHistoryBounded(t *testing.T) {
	h := newReplyHistory()
	for i := 0; i < 10*historyMethods; i++ {
		h.observe(replyKind{method: fmt.Sprint("m_", i)}, 10)
	}
	if n := len(*h.known.Load()); n > historyMethods {
		t.Fatalf("%d methods have a history", n)
	}
}

func BenchmarkGuardHistoryExpect(b *testing.B) {
	h, kind := newReplyHistory(), kindOf("eth_call", nil)
	h.observe(kind, 100)
	b.ReportAllocs()
	for b.Loop() {
		h.expect(kind)
	}
}

func BenchmarkGuardHistoryObserve(b *testing.B) {
	h, kind := newReplyHistory(), kindOf("eth_call", nil)
	b.ReportAllocs()
	for b.Loop() {
		h.observe(kind, 100)
	}
}
