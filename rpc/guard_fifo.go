// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

// fifo is a queue in a slice whose front moves. An empty one holds no memory.
type fifo[T any] struct {
	items []T
	front int
}

func (q *fifo[T]) len() int { return len(q.items) - q.front }

func (q *fifo[T]) push(item T) {
	if q.front > 16 && q.front > len(q.items)/2 {
		n := copy(q.items, q.items[q.front:])
		clear(q.items[n:])
		q.items, q.front = q.items[:n], 0
	}
	q.items = append(q.items, item)
}

func (q *fifo[T]) pop() T {
	item := q.items[q.front]
	var none T
	q.items[q.front] = none
	if q.front++; q.front == len(q.items) {
		*q = fifo[T]{}
	}
	return item
}

func (q *fifo[T]) each(f func(*T)) {
	for i := q.front; i < len(q.items); i++ {
		f(&q.items[i])
	}
}
