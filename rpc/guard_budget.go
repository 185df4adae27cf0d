// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
)

const (
	// budgetStep is the unit in which bytes are charged before they exist.
	budgetStep = 64 << 10

	// errcodeBudget answers what does not fit a budget. Clients know it as
	// "limit exceeded" and repeat the call later.
	errcodeBudget = -32005

	// maxEvictions bounds the work of one grow under the lock.
	maxEvictions = 64
)

// byteBudget bounds the bytes that a set of holders, called charges, hold in
// memory together. One budget counts the request bytes of a node, another one
// its reply bytes.
//
// Nothing waits for a budget: a charge grows at once or is refused, and a
// refused charge gives back all that it held in the same locked step. So bytes
// never sit with a holder that cannot go on, and of any set of equal transfers
// that do not fit together as many survive as do fit.
//
// A part of the budget, the small reserve, is kept for charges of at most
// smallMax bytes: all larger ones together hold no more than limit minus the
// reserve, whereas small ones may use the whole budget. A charge that outgrows
// smallMax moves into the large part with everything it holds.
//
// The budget is shared by client. One client may use whatever is idle; when a
// charge does not fit, the client with most bytes in transfers that can be cut
// short loses those that grew longest ago, provided that the newcomer's client
// then holds no more than the loser keeps. A client with one transfer can
// therefore never be displaced, and two clients cannot displace each other in
// turn. Bytes of a displaced charge count as free from that step on, although
// their memory lasts until its goroutine has noticed.
//
// One transfer that fills the budget and then stops would lock everybody out for as
// long as it may stall, and its client keeps nothing that could be compared. So a
// budget with a pause gives the bytes of such a transfer to anybody who then holds
// no more than it did: one that has not grown for that pause and four times as long
// as it took for a step so far. One of 32 MiB that came in a second is expected to
// go on within 258 ms, one of 1 MB at 50 KB/s within 5.5 s.
//
// A transfer that is slow (slowTransfer) has no claim at all: if it is known how fast
// transfers are, the slow ones of others go first, whatever their clients keep and
// whoever needs the room. 13 clients that take 20 MB each at 2 KiB/s may hold the
// large part of 192 MiB while nobody else wants it; once they have been at it for
// 10 s, the first reply of 11 MB that does not fit takes the place of the slowest.
//
// With limit 64 MiB and a reserve of 16 MiB: one client fills 48 MiB with ten
// bodies of 4.8 MiB, an eleventh of its own is refused. Another client's body
// of 1 MiB cuts the first one's slowest short. 65 KB calls of everybody fit all
// the time, in the 16 MiB kept for them.
//
// Invariants, whenever mu is free: total is the sum of all held bytes and at
// most limit; large is the sum over charges above smallMax and at most
// largeLimit; a charge in a transfers list holds more than 0 bytes.
//
// In a dry run what does not fit is counted, once a charge, and let in uncharged.
//
// It is no allocator and does not know what the bytes are; waiting, timers and
// answers are its users' business.
type byteBudget struct {
	limit      int64
	largeLimit int64
	smallMax   int64
	dry        bool // count what does not fit, let it in

	// pause is how long a transfer may stop before it can be displaced by anybody;
	// 0: for ever. It needs the clock.
	pause time.Duration
	clock mclock.Clock

	// paced tells, without locks, whether the pace of any transfer is known; nil:
	// of none ever.
	paced func() bool

	mu      sync.Mutex
	total   int64
	large   int64
	high    int64
	refused uint64
	evicted uint64
	clients map[clientKey]*budgetClient
	any     shares // bytes that can be displaced, by client
	anyBig  shares // the same of charges above smallMax only
	spare   *budgetClient
	spares  int
}

// budgetClient is what one client holds. Records are reused, so that a small charge
// costs no allocation.
type budgetClient struct {
	held        int64
	small       linkedList[*charge] // can be displaced; longest without growth first
	big         linkedList[*charge] // the same for charges above smallMax
	any, anyBig shareHolder
	next        *budgetClient // of the spare ones
}

// spareClients is how many records of clients that hold nothing are kept.
const spareClients = 256

// newByteBudget returns a budget of limit bytes of which smallReserve are kept
// for charges of at most smallMax bytes.
func newByteBudget(limit, smallReserve, smallMax int64) (*byteBudget, error) {
	switch {
	case limit <= 0:
		return nil, fmt.Errorf("limit %d of byte budget: must be above 0", limit)
	case smallReserve < 0 || smallReserve >= limit:
		return nil, fmt.Errorf("small reserve %d of byte budget: must be in 0..%d", smallReserve, limit-1)
	case smallMax < 0:
		return nil, fmt.Errorf("largest small charge %d of byte budget: must not be negative", smallMax)
	}
	return &byteBudget{
		limit:      limit,
		largeLimit: limit - smallReserve,
		smallMax:   smallMax,
		clients:    make(map[clientKey]*budgetClient),
	}, nil
}

// budgetStats is what a budget says about itself at one moment, in bytes but
// for the counts Refused and Evicted.
type budgetStats struct {
	InUse, Large, High, Limit int64
	Refused, Evicted          uint64
}

// stats returns the budget's books as of now. A nil budget has none.
func (b *byteBudget) stats() budgetStats {
	if b == nil {
		return budgetStats{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return budgetStats{
		InUse: b.total, Large: b.large, High: b.high, Limit: b.limit,
		Refused: b.refused, Evicted: b.evicted,
	}
}

// budgetError says that a charge did not fit. Wanted is what it would have held
// in all, Available what it could have held at that moment, both in bytes.
type budgetError struct {
	Wanted    int64
	Available int64
	Limit     int64
}

func (e *budgetError) Error() string {
	return fmt.Sprintf("server is out of memory for this request: %d bytes wanted, %d available", e.Wanted, e.Available)
}

// ErrorCode implements Error.
func (e *budgetError) ErrorCode() int { return errcodeBudget }

// ErrorData implements DataError.
func (e *budgetError) ErrorData() any {
	return struct {
		Wanted    int64 `json:"wanted"`
		Available int64 `json:"available"`
		Limit     int64 `json:"limit"`
	}{e.Wanted, e.Available, e.Limit}
}

// grow returns the callbacks of those displaced.
func (b *byteBudget) grow(c *charge, n int64) ([]evictee, *budgetError) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.closed {
		if !c.late {
			panic("rpc: closed charge grown")
		}
		return nil, &budgetError{Wanted: n, Limit: b.limit}
	}
	want := c.size + min(n, math.MaxInt64-c.size) // saturates: neither a huge n nor a huge limit may wrap
	victims, ok := b.makeRoomLocked(c, want)
	if !ok {
		refusal := &budgetError{Wanted: c.size + n, Available: c.size + b.roomLocked(c, want), Limit: b.limit}
		if refusal.Wanted < 0 {
			refusal.Wanted = n
		}
		if b.dry && !c.displaced {
			if !c.over {
				c.over = true
				b.refused++
			}
			return nil, nil
		}
		b.setLocked(c, 0)
		b.refused++
		return nil, refusal
	}
	b.setLocked(c, want)
	if b.pause > 0 {
		c.latest = b.clock.Now()
		if c.grows == 0 {
			c.first = c.latest
		}
		c.grows++
	}
	return victims, nil
}

// excessLocked returns by how much c holding want bytes would exceed the whole
// budget and the large part.
func (b *byteBudget) excessLocked(c *charge, want int64) (whole, big int64) {
	whole = b.total - b.limit - c.size + want // in this order: it may not wrap
	if want > b.smallMax {
		big = b.large - b.largeLimit + want
		if c.size > b.smallMax {
			big -= c.size
		}
	}
	return whole, big
}

// roomLocked returns how much more c could hold, as one of want bytes.
func (b *byteBudget) roomLocked(c *charge, want int64) int64 {
	whole, big := b.excessLocked(c, want)
	return max(0, want-c.size-max(whole, big, 0))
}

func (b *byteBudget) heldLocked(key clientKey) int64 {
	if cl := b.clients[key]; cl != nil {
		return cl.held
	}
	return 0
}

// setLocked makes c hold n bytes, as its client's latest to grow.
func (b *byteBudget) setLocked(c *charge, n int64) {
	b.unlinkLocked(c)
	b.countLocked(c, n)
	b.linkLocked(c)
}

// restoreLocked undoes setLocked(c, 0), place in the order included.
func (b *byteBudget) restoreLocked(c *charge, n int64) {
	b.countLocked(c, n)
	if list, share := b.listOfLocked(c); list != nil {
		list.pushFront(&c.node)
		b.shareLocked(c, share, c.size)
	}
}

func (b *byteBudget) countLocked(c *charge, n int64) {
	cl := c.client
	if c.size == 0 {
		if n == 0 {
			return
		}
		cl = b.clientLocked(c.key)
		c.client = cl
	}
	cl.held += n - c.size
	b.total += n - c.size
	if c.size > b.smallMax {
		b.large -= c.size
	}
	if n > b.smallMax {
		b.large += n
	}
	c.size = n
	b.high = max(b.high, b.total)
	if cl.held == 0 {
		b.forgetLocked(c.key, cl)
	}
	if n == 0 {
		c.client = nil
	}
}

// clientLocked returns the record of a client.
func (b *byteBudget) clientLocked(key clientKey) *budgetClient {
	cl := b.clients[key]
	if cl != nil {
		return cl
	}
	if cl = b.spare; cl != nil {
		b.spare, cl.next = cl.next, nil
		b.spares--
	} else {
		cl = new(budgetClient)
	}
	cl.any.key, cl.anyBig.key = key, key
	b.clients[key] = cl
	return cl
}

// forgetLocked takes the record of a client that holds nothing away.
func (b *byteBudget) forgetLocked(key clientKey, cl *budgetClient) {
	delete(b.clients, key)
	if b.spares < spareClients {
		cl.next, b.spare = b.spare, cl
		b.spares++
	}
}

// linkLocked makes c its client's last to be displaced.
func (b *byteBudget) linkLocked(c *charge) {
	if list, big := b.listOfLocked(c); list != nil {
		list.pushBack(&c.node)
		b.shareLocked(c, big, c.size)
	}
}

// listOfLocked returns the transfers list that c belongs in, nil if it cannot
// be displaced.
func (b *byteBudget) listOfLocked(c *charge) (list *linkedList[*charge], big bool) {
	if c.onEvict == nil || c.size == 0 {
		return nil, false
	}
	if c.size > b.smallMax {
		return &c.client.big, true
	}
	return &c.client.small, false
}

func (b *byteBudget) shareLocked(c *charge, big bool, n int64) {
	b.any.adjust(&c.client.any, n)
	if big {
		b.anyBig.adjust(&c.client.anyBig, n)
	}
}

func (b *byteBudget) unlinkLocked(c *charge) {
	if c.node.in == nil {
		return
	}
	c.node.in.remove(&c.node)
	b.shareLocked(c, c.size > b.smallMax, -c.size)
}
