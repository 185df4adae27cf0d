// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"container/heap"
	"fmt"
	"net/netip"
)

// clientKey names one client of the node's shared capacities. It is small and
// comparable. The zero key is the node itself.
type clientKey struct {
	prefix netip.Prefix // address, or network for clients counted by network
	conn   uint64       // tells connections apart where the peer is a proxy
}

// clientOf returns the key of a client known by its address alone.
func clientOf(addr netip.Addr) clientKey {
	return clientKey{prefix: netip.PrefixFrom(addr, addr.BitLen())}
}

// shares counts how much of one capacity each client holds and names the client
// that holds most. It is deterministic: of equal holders the one that has been
// a holder for longest is the greediest. The zero value is ready for use. It
// has no lock of its own; that of its user guards it.
//
// add and remove cost O(log clients), held and greediest O(1).
type shares struct {
	holders map[clientKey]*shareHolder
	order   shareHeap
	since   uint64
}

type shareHolder struct {
	key   clientKey
	held  int64
	since uint64 // order of arrival, breaks ties
	index int    // in shareHeap
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
		s.since++
		h = &shareHolder{key: key, held: n, since: s.since}
		s.holders[key] = h
		heap.Push(&s.order, h)
		return
	}
	h.held += n
	heap.Fix(&s.order, h.index)
}

// remove takes n units back from key. Taking more than it holds panics.
func (s *shares) remove(key clientKey, n int64) {
	if n == 0 {
		return
	}
	h := s.holders[key]
	if h == nil || n < 0 || n > h.held {
		panic(fmt.Sprintf("rpc: %d units of a share returned, %d held", n, s.held(key)))
	}
	h.held -= n
	if h.held == 0 {
		heap.Remove(&s.order, h.index)
		delete(s.holders, key)
		return
	}
	heap.Fix(&s.order, h.index)
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
