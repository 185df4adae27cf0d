// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"bytes"
	"maps"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"
)

// What a reply is expected to need before its method has a history, in bytes.
const (
	startSmall = 64 << 10
	startLists = 1 << 20  // full blocks, receipts, logs
	startBulk  = 16 << 20 // traces, pool contents
)

const (
	historyMethods = 1024 // methods with a history of their own
	historyWindow  = 1024 // replies after which all counts are halved
	historyBuckets = 128  // four per power of two, 64 powers would be 256
)

// replyHistory knows how many bytes the replies of each method have needed. It
// is asked before a call runs, so that the call can reserve them: charging only
// what exists already bounds nothing, since any number of calls can pass an
// empty budget together and then each build 20 MB.
//
// A method's history is a histogram of sizes with four buckets per power of two,
// so an answer is at most a quarter too high and never too low. All counts are
// halved every 1024 replies, so that it follows a change within a few thousand
// calls. The first observation of every method is its start value: until 20
// replies were seen, the 95th percentile is the largest of them all, and an
// unknown method is never believed to be small after one call.
//
// Memory is O(1) a method, 528 bytes, and the number of methods is bounded: the
// caller only asks for methods that are registered (a name that a client made up
// must never get here), and past 1024 of them the rest share one histogram.
//
// Reading a block with full transactions is not the same call as reading its
// header: the two have histories of their own, see replyKind.
//
// Example: eth_getLogs starts at 1 MiB. After 20 answers of which none exceeded
// 5 KB the start value is the one in 20 left out, and the next call reserves
// 5 KiB. One call in ten that answers 3 MB makes all of them reserve 3 MiB.
//
// It does not know what a call will answer, only what is likely; what is missing
// is charged while the reply is encoded.
type replyHistory struct {
	// What is known, replaced when a method is added: every call asks, and adding is
	// over a moment after the start.
	known atomic.Pointer[map[replyKind]*sizeHistogram]
	rest  *sizeHistogram // of methods beyond the bound

	mu sync.Mutex // of those that add
}

// replyExpectation is what the history says of one kind of replies, at one moment. It
// is asked for once a call.
type replyExpectation struct {
	history *replyHistory
	kind    replyKind
	sizes   *sizeHistogram // nil: no reply of the kind was seen yet
	size    int64          // bytes to reserve
}

// observe adds a reply of n bytes. Replies that were refused for their size
// count with the size they had reached: the next one will want as much.
func (e *replyExpectation) observe(n int64) {
	if e.sizes == nil {
		e.history.observe(e.kind, n)
		return
	}
	e.sizes.observe(n)
}

// replyKind is a method as the history tells them apart.
type replyKind struct {
	method string
	full   bool // its last parameter asks for whole transactions
}

func newReplyHistory() *replyHistory {
	h := &replyHistory{rest: newSizeHistogram(startLists)}
	h.known.Store(new(map[replyKind]*sizeHistogram))
	return h
}

// kindOf tells what sort of reply a call asks for. It costs no parsing: a block
// with full transactions is asked for by a last parameter `true`, and whoever
// writes that in an unusual way is corrected when the reply is encoded.
func kindOf(method string, params []byte) replyKind {
	if !strings.HasPrefix(method, "eth_getBlockBy") {
		return replyKind{method: method}
	}
	tail := bytes.TrimRight(params, " \t\r\n]")
	return replyKind{method: method, full: bytes.HasSuffix(tail, []byte("true"))}
}

// expect returns the number of bytes to reserve for a reply: what 95 of 100 so
// far would have fitted in.
func (h *replyHistory) expect(kind replyKind) int64 { return h.lookup(kind).size }

// lookup is expect with the way to add to what it knows.
func (h *replyHistory) lookup(kind replyKind) replyExpectation {
	e := replyExpectation{history: h, kind: kind, sizes: (*h.known.Load())[kind]}
	if e.sizes == nil {
		e.size = startSize(kind)
	} else {
		e.size = e.sizes.expected.Load()
	}
	return e
}

// observe adds a reply of n bytes.
func (h *replyHistory) observe(kind replyKind, n int64) {
	m := (*h.known.Load())[kind]
	if m == nil {
		m = h.add(kind)
	}
	m.observe(n)
}

func (h *replyHistory) add(kind replyKind) *sizeHistogram {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := *h.known.Load()
	if m := known[kind]; m != nil {
		return m
	}
	if len(known) >= historyMethods {
		return h.rest
	}
	m := newSizeHistogram(startSize(kind))
	more := make(map[replyKind]*sizeHistogram, len(known)+1)
	maps.Copy(more, known)
	more[kind] = m
	h.known.Store(&more)
	return m
}

// startSize is what replies of a kind are taken for before one was seen. The
// lists are literal on purpose: a wrong entry costs one badly sized reservation.
func startSize(kind replyKind) int64 {
	if kind.full {
		return startLists
	}
	switch m := kind.method; m {
	case "eth_getLogs", "eth_getFilterLogs", "eth_getFilterChanges", "eth_getBlockReceipts",
		"debug_getRawReceipts", "debug_getRawBlock", "eth_simulateV1":
		return startLists
	case "txpool_content", "txpool_contentFrom", "txpool_inspect",
		"debug_dumpBlock", "debug_accountRange", "debug_getBadBlocks", "debug_storageRangeAt":
		return startBulk
	default:
		if strings.HasPrefix(m, "debug_trace") || strings.HasPrefix(m, "trace_") {
			return startBulk
		}
		return startSmall
	}
}

// sizeHistogram counts sizes in buckets that grow by a quarter of a power of
// two. The zero value is not usable; see newSizeHistogram.
type sizeHistogram struct {
	expected atomic.Int64 // upper end of the bucket of the 95th percentile

	mu     sync.Mutex
	total  uint32
	at     int    // bucket of expected
	above  uint32 // replies in the buckets above it
	counts [historyBuckets]uint32
}

func newSizeHistogram(start int64) *sizeHistogram {
	m := new(sizeHistogram)
	m.observe(start)
	return m
}

func (m *sizeHistogram) observe(n int64) {
	bucket := sizeBucket(n)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts[bucket]++
	if bucket > m.at {
		m.above++
	}
	if m.total++; m.total >= historyWindow {
		m.total, m.above = 0, 0
		for i := range m.counts {
			m.counts[i] /= 2
			m.total += m.counts[i]
			if i > m.at {
				m.above += m.counts[i]
			}
		}
	}
	// The 95th percentile is the smallest size that at most one in 20 exceeds. It is
	// followed from where it was, seldom by more than a bucket.
	allowed, before := m.total/20, m.at
	for m.above > allowed {
		m.at++
		m.above -= m.counts[m.at]
	}
	for m.at > 0 && m.above+m.counts[m.at] <= allowed {
		m.above += m.counts[m.at]
		m.at--
	}
	if m.at != before || m.total == 1 {
		m.expected.Store(bucketEnd(m.at))
	}
}

// sizeBucket returns the bucket of a size. Up to 1 KiB everything is in the
// first one: reservations are not that fine.
func sizeBucket(n int64) int {
	if n <= 1<<10 {
		return 0
	}
	// n-1 makes the upper end of a bucket part of it: 1280 is the end of bucket
	// 1, so an observed power of two is answered with itself.
	v := uint64(n - 1)
	exp := bits.Len64(v) - 1 // at least 10
	quarter := int(v >> (exp - 2) & 3)
	return min(1+(exp-10)*4+quarter, historyBuckets-1)
}

// bucketEnd returns the largest size of a bucket.
func bucketEnd(i int) int64 {
	if i == 0 {
		return 1 << 10
	}
	exp, quarter := 10+(i-1)/4, int64((i-1)%4)
	return 1<<exp + (quarter+1)<<(exp-2)
}
