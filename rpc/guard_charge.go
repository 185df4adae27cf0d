// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import "github.com/ethereum/go-ethereum/common/mclock"

// charge is one holder of a budget's bytes. It belongs to one goroutine at a
// time, except that the budget may take its bytes away. A nil charge fits
// everything.
type charge struct {
	b   *byteBudget
	key clientKey

	// The rest is guarded by b.mu.
	size      int64
	client    *budgetClient // valid while size is above 0
	onEvict   evictee       // nil: cannot be displaced
	displaced bool
	late      bool // may be grown after it was closed, which then fails
	over      bool // counted as refused in a dry run
	closed    bool
	grows     int64 // times it has grown
	first     mclock.AbsTime
	latest    mclock.AbsTime // when it grew
	node      listNode[*charge]
}

// evictee is told that its charge was displaced. It is called without locks.
type evictee interface{ evicted() }

// pacedEvictee is one whose transfer may be known to be slow.
type pacedEvictee interface {
	evictee

	// pace returns how many bytes a second its client takes, if that is known. It is
	// called under the budget's lock and must take none.
	pace() (rate int64, known bool)
}

type evictFunc func()

func (f evictFunc) evicted() { f() }

// open returns a holder of no bytes yet. onEvict, if not nil, lets others
// displace it: it is called without locks, once, from their goroutine, after
// the bytes are gone; the charge may have been closed by then. A nil budget
// returns a nil charge.
func (b *byteBudget) open(key clientKey, onEvict func()) *charge {
	if b == nil {
		return nil
	}
	c := &charge{b: b, key: key}
	c.node.of = c
	if onEvict != nil {
		c.onEvict = evictFunc(onEvict)
	}
	return c
}

// openIn is open for a holder that is part of a larger record, which is told when it
// is displaced. The record must not be reused while it can be.
func (b *byteBudget) openIn(c *charge, key clientKey, whom evictee) *charge {
	if b == nil {
		return nil
	}
	*c = charge{b: b, key: key, onEvict: whom}
	c.node.of = c
	return c
}

// grow adds n bytes to the charge, to be called before they are read or built.
// It fails with a *budgetError, and the charge then holds nothing. A charge
// that was refused may try again from 0; one that was displaced never fits.
func (c *charge) grow(n int64) error {
	if c == nil || n == 0 {
		return nil
	}
	if n < 0 {
		panic("rpc: charge grown by a negative number of bytes")
	}
	victims, refusal := c.b.grow(c, n)
	for _, v := range victims {
		v.evicted()
	}
	if refusal != nil {
		return refusal
	}
	return nil
}

// trim lowers the charge to the given number of bytes. It never adds any.
func (c *charge) trim(to int64) {
	if c == nil {
		return
	}
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	if to < c.size {
		c.b.setLocked(c, max(to, 0))
	}
}

// setEvict changes whether the charge can be displaced: nil pins it, which is
// right once its bytes are in use by something that cannot be cut short. It
// reports false if the charge has been displaced already.
func (c *charge) setEvict(onEvict func()) bool {
	if c == nil {
		return true
	}
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	if c.displaced {
		return false
	}
	c.b.unlinkLocked(c)
	c.onEvict = nil
	if onEvict != nil {
		c.onEvict = evictFunc(onEvict)
	}
	c.b.linkLocked(c)
	return true
}

// touch tells the budget that the charge's transfer makes progress without
// growing, so that it counts as the client's fastest.
func (c *charge) touch() {
	if c == nil {
		return
	}
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	if list := c.node.in; list != nil && list.last != &c.node {
		list.remove(&c.node)
		list.pushBack(&c.node)
	}
}

// held returns how many bytes the charge holds.
func (c *charge) held() int64 {
	if c == nil {
		return 0
	}
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	return c.size
}

// close gives everything back. It must be called exactly once, and panics when
// it is called again: bytes returned twice would be somebody else's.
func (c *charge) close() {
	if c == nil {
		return
	}
	c.b.mu.Lock()
	defer c.b.mu.Unlock()
	if c.closed {
		panic("rpc: charge closed twice")
	}
	c.b.setLocked(c, 0)
	c.closed = true
}
