// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

// linkedList is a list whose nodes are part of the records that stand in it, so that
// putting a record in and taking it out allocates nothing and takes O(1) wherever it
// stands. The order is the order of pushes. The gate's calls and clients, the rings
// of its queue and the transfers of a byte budget stand in such lists.
//
// Invariants: a node is in one list at most and knows which; n is the number of
// nodes. Pushing a node that is in a list panics, and so does removing one that is
// not in this one: both would tie two lists together.
//
// The zero value is empty and ready. There is no lock; that of the user guards it.
// A record that must stand in two lists at once has two nodes.
type linkedList[T any] struct {
	first, last *listNode[T]
	n           int
}

// listNode is the part of a record that stands in a list. of leads back to the record
// and is set once, by whoever makes it.
type listNode[T any] struct {
	of         T
	in         *linkedList[T]
	prev, next *listNode[T]
}

// front returns the first record, the zero value if the list is empty.
func (l *linkedList[T]) front() (of T) {
	if l.first == nil {
		return of
	}
	return l.first.of
}

// back returns the last record, the zero value if the list is empty.
func (l *linkedList[T]) back() (of T) {
	if l.last == nil {
		return of
	}
	return l.last.of
}

// pushBack makes n the last node.
func (l *linkedList[T]) pushBack(n *listNode[T]) { l.insert(n, l.last, nil) }

// pushFront makes n the first node.
func (l *linkedList[T]) pushFront(n *listNode[T]) { l.insert(n, nil, l.first) }

// insert puts n between two neighbours; nil is the end of the list.
func (l *linkedList[T]) insert(n, prev, next *listNode[T]) {
	if n.in != nil {
		panic("rpc: node pushed that is in a list")
	}
	n.in, n.prev, n.next = l, prev, next
	if prev == nil {
		l.first = n
	} else {
		prev.next = n
	}
	if next == nil {
		l.last = n
	} else {
		next.prev = n
	}
	l.n++
}

// remove takes n out of the list.
func (l *linkedList[T]) remove(n *listNode[T]) {
	if n.in != l {
		panic("rpc: node removed that is not in the list")
	}
	if n.prev == nil {
		l.first = n.next
	} else {
		n.prev.next = n.next
	}
	if n.next == nil {
		l.last = n.prev
	} else {
		n.next.prev = n.prev
	}
	n.in, n.prev, n.next = nil, nil, nil
	l.n--
}
