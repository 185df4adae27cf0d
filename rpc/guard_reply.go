// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"sync"
	"sync/atomic"
)

const (
	// replySmall is the largest reply that may use the part of the budget kept
	// for small ones.
	replySmall = 64 << 10

	// replyOverhead is held beside the bytes of every reply: the message, its
	// envelope and its place in a queue.
	replyOverhead = 512

	// replyStep is the unit in which a charge grows, so that the budget's lock is
	// taken once for 64 KiB and not for every log of a query.
	replyStep = 64 << 10
)

// errReplyTooLarge says that a result exceeds reply.max, while it is built or
// while it is encoded. It stays a reply: the connection and everything else on
// it live on.
var errReplyTooLarge error = &internalServerError{errcodeResponseTooLarge, errMsgResponseTooLarge}

// replyBooks bounds the bytes of replies: those a method is building, those
// being encoded, and those that wait for a client to take them.
//
// # Model
//
// Every call reserves before it runs what its method's replies have needed so
// far (replyHistory), and the reservation is trued up as the reply comes into
// being. Charging only what exists already would bound nothing: 640 calls pass
// an empty budget together and then each builds 20 MB. The bytes are held until
// the writer says that the last one left, or that the connection is gone.
//
// A quarter of the budget is kept for replies of up to 64 KiB (see byteBudget),
// so a call that is expected to stay below that is never refused because of
// large ones, and one that is expected to exceed it is refused before it runs
// while the large part is full.
//
// # What is charged
//
//	building   what the method says it holds (BuildMeter); nothing for the others
//	encoding   every chunk of the reply before it is allocated, or the whole of a
//	           result that comes encoded
//	waiting    the chunks and 512 bytes, nothing else: what was built is let go,
//	           and framing copies nothing
//
// # Worked example
//
// Limit 512 MiB: 384 MiB for large replies. Fifty clients ask for a block of
// 20 MB and never read. The first call reserves 1 MiB and grows to 20 MB while
// it is encoded; after a few of them the method is expected to need 20 MB, so
// the 20th is refused before it runs. The node holds 384 MiB whatever they do;
// the 128 MiB that are left serve small calls.
//
// # Invariants
//
//   - A charge is released exactly once; releasing it again panics.
//   - A reply that is refused anywhere on this way holds nothing from that step on.
//   - Whenever no call runs and no reply waits, the budget is empty.
//
// It does not know what a reply is for, nor when it has left; the writers do.
type replyBooks struct {
	max     int64 // bytes of one encoded result; 0: no bound
	dryRun  bool  // refusals are counted, nothing is refused
	budget  *byteBudget
	history *replyHistory

	tooLarge atomic.Uint64 // replies replaced by -32003
	refused  atomic.Uint64 // calls or replies replaced by -32005
}

// newReplyBooks returns books over a budget of limit bytes for replies of at
// most max bytes each, 0 for no bound.
func newReplyBooks(limit, max int64) (*replyBooks, error) {
	budget, err := newByteBudget(limit, limit/4, replySmall)
	if err != nil {
		return nil, err
	}
	return &replyBooks{max: max, budget: budget, history: newReplyHistory()}, nil
}

// excess returns by how many bytes the replies exceed half of the budget. While
// they do, stalled connections are looked at more strictly.
func (b *replyBooks) excess() int64 {
	s := b.budget.stats()
	return s.InUse - s.Limit/2
}

// reserve opens the charge of one call, before it runs. The error, a
// *budgetError, says that its reply is not expected to fit.
func (b *replyBooks) reserve(key clientKey, kind replyKind) (*replyCharge, error) {
	return b.reserveIn(new(replyCharge), key, b.expect(kind))
}

// expect returns what is known of replies of a kind.
func (b *replyBooks) expect(kind replyKind) replyExpectation {
	if b == nil {
		return replyExpectation{}
	}
	return b.history.lookup(kind)
}

// reserveIn is reserve into c, which is empty and part of a larger record.
func (b *replyBooks) reserveIn(c *replyCharge, key clientKey, expected replyExpectation) (*replyCharge, error) {
	if b == nil {
		return nil, nil
	}
	c.books, c.kind, c.reserved = b, expected, expected.size
	b.budget.openIn(&c.charge, key, c)
	c.charge.late = true // what a method left running may go on building
	if err := c.charge.grow(c.reserved); err != nil {
		c.charge.close()
		b.refused.Add(1)
		if b.dryRun {
			return nil, nil
		}
		return nil, err
	}
	c.granted = c.reserved
	return c, nil
}

// replyCutter ends the transfer of a reply. It does not wait.
type replyCutter interface{ cutReply() }

// replyCharge is what one call's reply holds of the budget, from before the call
// runs until the last byte has left. A nil charge is never refused anything.
type replyCharge struct {
	books    *replyBooks
	kind     replyExpectation
	reserved int64
	charge   charge
	cut      replyCutter
	failed   atomic.Pointer[error] // first refusal; sticks
	ignored  atomic.Bool           // dry run: it would have been refused
	complete atomic.Bool           // cut is set: the reply is on its way
	next     *replyCharge          // of the same message

	mu       sync.Mutex
	granted  int64 // of the budget; what is needed may lag behind
	built    int64 // held by the method
	output   int64 // of that, what will be its result
	encoded  int64 // the reply's
	released bool
}

// build adds n bytes that the method holds of what will be its result. A negative
// n takes some back.
func (c *replyCharge) build(n int64) error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	c.built += n
	c.output += n
	tooLarge := c.books.max > 0 && c.output > c.books.max
	c.mu.Unlock()
	if tooLarge {
		return c.fail(errReplyTooLarge)
	}
	return c.fit()
}

// hold is build for memory that the method needs beside its result.
func (c *replyCharge) hold(n int64) error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	c.built += n
	c.mu.Unlock()
	return c.fit()
}

// encode adds n bytes of the encoded reply.
func (c *replyCharge) encode(n int64) error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	c.encoded += n
	c.mu.Unlock()
	return c.fit()
}

// joined says that the pieces of the encoded reply, n bytes, were copied into one and
// let go.
func (c *replyCharge) joined(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.encoded = n
}

// fit makes the budget's grant cover what is needed.
func (c *replyCharge) fit() error {
	if p := c.failed.Load(); p != nil {
		return *p
	}
	if c.ignored.Load() {
		return nil
	}
	c.mu.Lock()
	missing := c.built + c.encoded + replyOverhead - c.granted
	if missing > 0 {
		missing = (missing + replyStep - 1) / replyStep * replyStep
		c.granted += missing
	}
	c.mu.Unlock()
	if missing <= 0 {
		return nil
	}
	// Outside the lock, since growing may call those that it displaces. Another
	// goroutine of the same call that passes meanwhile runs ahead of the answer
	// by less than a step and gets it with its next one.
	if err := c.charge.grow(missing); err != nil {
		return c.fail(err)
	}
	return nil
}

// fail remembers the first refusal and returns it. What was held is gone: the
// call goes on only to come to its end.
//
// In a dry run it is counted once, and the call goes on without a charge.
func (c *replyCharge) fail(err error) error {
	if c.books.dryRun {
		if c.ignored.Swap(true) {
			return nil
		}
	} else if !c.failed.CompareAndSwap(nil, &err) {
		return *c.failed.Load()
	}
	c.charge.trim(0)
	c.mu.Lock()
	reached := max(c.output, c.encoded)
	c.mu.Unlock()
	if reached > 0 {
		c.kind.observe(reached) // the next one will want as much
	}
	if err == errReplyTooLarge {
		c.books.tooLarge.Add(1)
	} else {
		c.books.refused.Add(1)
	}
	if c.books.dryRun {
		return nil
	}
	return err
}

// err returns the refusal that the call has met, nil if there was none.
func (c *replyCharge) err() error {
	if c == nil {
		return nil
	}
	if p := c.failed.Load(); p != nil {
		return *p
	}
	return nil
}

// settle says that the reply is complete, at size bytes, and how to cut its
// connection should another client have a better claim to the memory. What the
// method built is let go. It fails if the reply was displaced before it was
// handed over; then there is something to answer instead.
//
// A reservation that is hardly more than the reply stays as it is: giving 4 KiB back a
// moment before all is given back is not worth the budget's lock.
func (c *replyCharge) settle(size int64, cut replyCutter) error {
	if c == nil {
		return nil
	}
	c.kind.observe(size)
	if err := c.fit(); err != nil {
		return err
	}
	c.mu.Lock()
	c.built = 0
	keep := min(c.encoded+replyOverhead, c.granted)
	if c.granted-keep < settleSlack {
		keep = c.granted
	}
	trim := keep != c.granted
	c.granted = keep
	c.mu.Unlock()
	if trim {
		c.charge.trim(keep)
	}
	if cut != nil {
		c.cut = cut
		c.complete.Store(true)
	}
	return c.err() // after the store: either evicted sees cut, or this sees evicted
}

// settleSlack is what a reply may hold more than it needs while it waits.
const settleSlack = 4 << 10

// abandon says that the method failed: its reply is an error of size bytes, and
// teaches the history nothing.
func (c *replyCharge) abandon(size int64) error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	c.built, c.encoded = 0, size
	c.mu.Unlock()
	if err := c.fit(); err != nil {
		return err
	}
	c.mu.Lock()
	c.granted = min(size+replyOverhead, c.granted)
	keep := c.granted
	c.mu.Unlock()
	c.charge.trim(keep)
	return nil
}

// evicted runs when another client displaces this one, on that one's goroutine.
func (c *replyCharge) evicted() {
	c.fail(&budgetError{Wanted: c.reserved, Available: 0, Limit: c.books.budget.limit})
	if c.complete.Load() && !c.books.dryRun {
		c.cut.cutReply()
	}
}

// pacedCutter is one that may know how fast its client takes what it is sent.
type pacedCutter interface {
	replyCutter
	pace() (rate int64, known bool) // takes no lock
}

// pace implements pacedEvictee: it is known of a reply that is on its way.
func (c *replyCharge) pace() (rate int64, known bool) {
	if !c.complete.Load() {
		return 0, false
	}
	cut, ok := c.cut.(pacedCutter)
	if !ok {
		return 0, false
	}
	return cut.pace()
}

// held returns the bytes that the reply holds of the budget.
func (c *replyCharge) held() int64 {
	if c == nil {
		return 0
	}
	return c.charge.held()
}

// progress tells the budget that the reply's transfer moves, so that it is not
// the first to go.
func (c *replyCharge) progress() {
	if c != nil {
		c.charge.touch()
	}
}

// release gives everything back: the last byte has left, or the connection is
// gone. It panics when called twice, since the bytes would be somebody else's.
func (c *replyCharge) release() {
	if c == nil {
		return
	}
	c.mu.Lock()
	twice := c.released
	c.released = true
	c.mu.Unlock()
	if twice {
		panic("rpc: reply released twice")
	}
	c.charge.close()
}
