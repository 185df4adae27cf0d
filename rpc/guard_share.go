// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"container/heap"
	"fmt"
)

// shares counts how much of one capacity each client holds, and names the one
// that loses when something does not fit. Every limit of a node is shared so:
// permits and places, request bytes, reply bytes, filters, connections.
//
// # Rule
//
// One client may use all that is idle. When a newcomer does not fit, the holder
// of the largest share gives way, provided the newcomer then holds no more than
// the loser keeps. The proviso is what stops equals from throwing each other
// out: without it a client with nothing would evict one of a hundred holders of
// one place each, that one the next, and nobody would ever be served.
//
// With 6 places of which A holds 5 and B 1, a newcomer C takes one of A's (4, 1,
// 1) and then another (3, 1, 2), and then no more: a third would leave A with 2
// and C with 3.
//
// # Properties
//
// Deterministic: of equal holders the one that became a holder first is the
// greediest. The zero value is ready for use. It has no lock; that of its user
// guards it. add and remove cost O(log clients), the others O(1).
type shares struct {
	holders map[clientKey]*shareHolder
	order   shareHeap
	since   uint64
}

// shareHolder is what one client holds. Its zero value with a key is a client that
// holds nothing. A user that has a record of each client anyway may embed it there
// and call adjust; the others name the client by key.
type shareHolder struct {
	key   clientKey
	held  int64
	since uint64 // order of arrival, breaks ties
	index int    // in shareHeap, if held > 0
}

// add gives n more units to key.
func (s *shares) add(key clientKey, n int64) {
	if n < 0 {
		panic("rpc: negative share added")
	}
	if n == 0 {
		return
	}
	h := s.holders[key]
	if h == nil {
		if s.holders == nil {
			s.holders = make(map[clientKey]*shareHolder)
		}
		h = &shareHolder{key: key}
		s.holders[key] = h
	}
	s.adjust(h, n)
}

// remove takes n units back from key. Taking more than it holds panics.
func (s *shares) remove(key clientKey, n int64) {
	if n == 0 {
		return
	}
	h := s.holders[key]
	if h == nil || n < 0 {
		panic(fmt.Sprintf("rpc: %d units of a share returned, %d held", n, s.held(key)))
	}
	s.adjust(h, -n)
	if h.held == 0 {
		delete(s.holders, key)
	}
}

// adjust changes what h holds by n units, which may be negative. Going below 0
// panics.
func (s *shares) adjust(h *shareHolder, n int64) {
	before := h.held
	if before+n < 0 {
		panic(fmt.Sprintf("rpc: %d units of a share returned, %d held", -n, before))
	}
	h.held += n
	switch {
	case before == 0 && h.held > 0:
		s.since++
		h.since = s.since
		heap.Push(&s.order, h)
	case before > 0 && h.held == 0:
		heap.Remove(&s.order, h.index)
	case n != 0:
		heap.Fix(&s.order, h.index)
	}
}

// held returns what key holds.
func (s *shares) held(key clientKey) int64 {
	if h := s.holders[key]; h != nil {
		return h.held
	}
	return 0
}

// greediest returns the client that holds most and how much that is, 0 if
// nobody holds anything.
func (s *shares) greediest() (clientKey, int64) {
	if len(s.order) == 0 {
		return clientKey{}, 0
	}
	return s.order[0].key, s.order[0].held
}

// loser returns the client that must give n units up to newcomer, which wants n
// more than it holds. It returns false if nobody must: then it is the newcomer
// that goes without.
func (s *shares) loser(newcomer clientKey, n int64) (clientKey, bool) {
	return s.loserTo(s.held(newcomer), n)
}

// loserTo is loser for a newcomer known to hold so many units.
func (s *shares) loserTo(held, n int64) (clientKey, bool) {
	key, most := s.greediest()
	return key, n > 0 && most-n >= held+n
}

// fairCap returns how much of limit one client may hold while another waits. It
// is never 0: with a limit of 1 nobody could be served otherwise.
func fairCap(limit int) int {
	return max(1, limit-max(1, limit/4))
}

// shareHeap is a heap.Interface with the greediest holder first.
type shareHeap []*shareHolder

func (h shareHeap) Len() int { return len(h) }

func (h shareHeap) Less(i, j int) bool {
	if h[i].held != h[j].held {
		return h[i].held > h[j].held
	}
	return h[i].since < h[j].since
}

func (h shareHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *shareHeap) Push(x any) {
	e := x.(*shareHolder)
	e.index = len(*h)
	*h = append(*h, e)
}

func (h *shareHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return e
}
