// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
)

// connTable bounds the connections of a node's untrusted servers, streams and
// plain HTTP together, in all and by client.
//
// A connection that does not fit is refused at once, unless the client with most
// connections has one that is idle and keeps no fewer than the newcomer's client
// then has: its longest idle one is closed instead. A connection is idle from the
// last byte in either direction on; one with a request being served is never
// closed for another. Clients that cannot be told apart from a proxy count as one
// client per connection: the limit per client does not apply to them, and nobody
// loses to them or they to anybody.
//
// A connection from a trusted proxy becomes its client's when a WebSocket begins on it
// (assign): until then it may carry requests of many.
//
// With max 10000: ten addresses hold 1000 idle connections each and an eleventh
// comes. One of the ten loses its longest idle one. At 910 each, the eleventh has
// 900 and gets no more than its share.
//
// A connection holds its place until it is closed, and no bytes.
type connTable struct {
	max, perClient int
	clock          mclock.Clock
	dry            bool // refuse nothing, count as if

	active  atomic.Int64 // = len of all, for those who only look
	high    atomic.Int64
	refused atomic.Uint64
	evicted atomic.Uint64

	mu      sync.Mutex
	count   int
	held    shares                                // connections by client
	idle    shares                                // those of them that may be closed, by client
	clients map[clientKey]*linkedList[*connPlace] // the idle ones, longest idle first
}

// connTouch is how exactly the last activity of a connection is known.
const connTouch = time.Second

// connPlace is the place of one connection.
type connPlace struct {
	t       *connTable
	evict   func()       // closes the connection
	touched atomic.Int64 // mclock.AbsTime

	// Guarded by t.mu.
	key  clientKey
	busy bool
	gone bool
	node listNode[*connPlace]
}

// newConnTable returns a table of at most max connections, perClient of one
// client.
func newConnTable(max, perClient int, clock mclock.Clock) *connTable {
	return &connTable{max: max, perClient: perClient, clock: clock, clients: make(map[clientKey]*linkedList[*connPlace])}
}

// add takes a place for a connection of the given client. evict, called without
// locks from another goroutine and at most once, must close it without waiting.
// It returns nil if the connection is refused.
func (t *connTable) add(key clientKey, evict func()) *connPlace {
	p := &connPlace{t: t, key: key, evict: evict}
	p.node.of = p
	p.touched.Store(int64(t.clock.Now()))
	victim, ok := t.admit(p)
	if !ok {
		t.refused.Add(1)
		if !t.dry {
			return nil
		}
		t.force(p)
	}
	if victim != nil {
		t.evicted.Add(1)
		victim.evict()
	}
	return p
}

func (t *connTable) admit(p *connPlace) (victim *connPlace, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	mine := t.held.held(p.key)
	if !p.key.perConn() && mine >= int64(t.perClient) {
		return nil, false
	}
	if t.count >= t.max {
		greedy, n := t.idle.greediest()
		if n == 0 || greedy == p.key || mine+1 > t.held.held(greedy)-1 {
			return nil, false
		}
		if t.dry {
			return nil, false
		}
		victim = t.clients[greedy].front()
		t.removeLocked(victim)
	}
	t.insertLocked(p)
	return victim, true
}

// assign makes the place one of the given client's, and reports whether that one may have
// another. If not, the place stays whose it was, and the refusal is counted.
func (p *connPlace) assign(key clientKey) bool {
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	if p.gone || p.key == key {
		return true // closed already, or told apart without a header
	}
	if !key.perConn() && p.t.held.held(key) >= int64(p.t.perClient) {
		p.t.refused.Add(1)
		if !p.t.dry {
			return false
		}
	}
	p.t.unlinkLocked(p)
	p.t.held.remove(p.key, 1)
	p.key = key
	p.t.held.add(key, 1)
	p.t.linkLocked(p)
	return true
}

// force gives a place beyond the limits.
func (t *connTable) force(p *connPlace) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.insertLocked(p)
}

func (t *connTable) insertLocked(p *connPlace) {
	t.count++
	t.held.add(p.key, 1)
	t.linkLocked(p)
	t.active.Store(int64(t.count))
	t.high.Store(max(t.high.Load(), int64(t.count)))
}

// touch notes that bytes have passed.
func (p *connPlace) touch() {
	now := p.t.clock.Now()
	if now.Sub(mclock.AbsTime(p.touched.Load())) < connTouch {
		return
	}
	p.touched.Store(int64(now))
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	if p.node.in != nil {
		p.t.unlinkLocked(p)
		p.t.linkLocked(p)
	}
}

// setBusy notes whether a request is being served on the connection.
func (p *connPlace) setBusy(busy bool) {
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	if p.gone || p.busy == busy {
		return
	}
	p.t.unlinkLocked(p)
	p.busy = busy
	p.t.linkLocked(p)
}

// remove gives the place back. It may be called more than once, since closing a
// connection may be, too.
func (p *connPlace) remove() {
	p.t.mu.Lock()
	defer p.t.mu.Unlock()
	p.t.removeLocked(p)
}

func (t *connTable) removeLocked(p *connPlace) {
	if p.gone {
		return
	}
	t.unlinkLocked(p)
	p.gone = true
	t.count--
	t.held.remove(p.key, 1)
	t.active.Store(int64(t.count))
}

// linkLocked lists p as its client's last to go, if it may be closed.
func (t *connTable) linkLocked(p *connPlace) {
	if p.busy || p.gone || p.key.perConn() {
		return
	}
	c := t.clients[p.key]
	if c == nil {
		c = new(linkedList[*connPlace])
		t.clients[p.key] = c
	}
	c.pushBack(&p.node)
	t.idle.add(p.key, 1)
}

func (t *connTable) unlinkLocked(p *connPlace) {
	c := p.node.in
	if c == nil {
		return
	}
	c.remove(&p.node)
	t.idle.remove(p.key, 1)
	if c.n == 0 {
		delete(t.clients, p.key)
	}
}
