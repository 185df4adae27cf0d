// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"bytes"
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
	mu      sync.RWMutex
	methods map[replyKind]*sizeHistogram
	rest    *sizeHistogram // of methods beyond the bound
}

// replyKind is a method as the history tells them apart.
type replyKind struct {
	method string
	full   bool // its last parameter asks for whole transactions
}

func newReplyHistory() *replyHistory {
	return &replyHistory{
		methods: make(map[replyKind]*sizeHistogram),
		rest:    newSizeHistogram(startLists),
	}
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
func (h *replyHistory) expect(kind replyKind) int64 {
	h.mu.RLock()
	m := h.methods[kind]
	h.mu.RUnlock()
	if m == nil {
		return startSize(kind)
	}
	return m.expected.Load()
}

// observe adds a reply of n bytes. Replies that were refused for their size
// count with the size they had reached: the next one will want as much.
func (h *replyHistory) observe(kind replyKind, n int64) {
	h.mu.RLock()
	m := h.methods[kind]
	h.mu.RUnlock()
	if m == nil {
		m = h.add(kind)
	}
	m.observe(n)
}

func (h *replyHistory) add(kind replyKind) *sizeHistogram {
	h.mu.Lock()
	defer h.mu.Unlock()
	if m := h.methods[kind]; m != nil {
		return m
	}
	if len(h.methods) >= historyMethods {
		return h.rest
	}
	m := newSizeHistogram(startSize(kind))
	h.methods[kind] = m
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
	counts [historyBuckets]uint32
}

func newSizeHistogram(start int64) *sizeHistogram {
	m := new(sizeHistogram)
	m.observe(start)
	return m
}

func (m *sizeHistogram) observe(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts[sizeBucket(n)]++
	if m.total++; m.total >= historyWindow {
		m.total = 0
		for i := range m.counts {
			m.counts[i] /= 2
			m.total += m.counts[i]
		}
	}
	// The 95th percentile is the smallest size that at most one in 20 exceeds.
	allowed := m.total / 20
	i, above := historyBuckets-1, uint32(0)
	for ; i > 0; i-- {
		if above += m.counts[i]; above > allowed {
			break
		}
	}
	m.expected.Store(bucketEnd(i))
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
