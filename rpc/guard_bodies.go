// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"sync"
)

// bodyQueue holds what the messages of a stream connection are charged between the
// time they are read and the time their calls start, which is in the same order.
// The zero value is empty.
type bodyQueue struct {
	mu     sync.Mutex
	waits  []*charge
	few    [2]*charge // room for waits, which are seldom more
	closed bool
}

func (q *bodyQueue) push(mem *charge) {
	q.mu.Lock()
	closed := q.closed
	if !closed {
		if len(q.waits) == 0 {
			q.waits = q.few[:0]
		}
		q.waits = append(q.waits, mem)
	}
	q.mu.Unlock()
	if closed {
		mem.close()
	}
}

// pop returns the oldest charge, nil if there is none.
func (q *bodyQueue) pop() *charge {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waits) == 0 {
		return nil
	}
	mem := q.waits[0]
	q.waits[0] = nil
	if q.waits = q.waits[1:]; len(q.waits) == 0 {
		q.waits = nil
	}
	return mem
}

// close gives back what is left: those messages will not start any more.
func (q *bodyQueue) close() {
	q.mu.Lock()
	left := q.waits
	q.waits, q.closed = nil, true
	q.mu.Unlock()
	for _, mem := range left {
		mem.close()
	}
}

// chargeMessage takes over the charge of the message that was read last. One with
// calls keeps it until they have been answered.
func (c *guardCodec) chargeMessage(calls bool) {
	mem := c.conn.taken()
	if !calls {
		mem.close()
		return
	}
	c.bodies.push(mem)
}

// releaseMessage gives back the bytes of the message that a reply belongs to, which
// has been built. The answer to a call that has run out of time, an isError, leaves
// them to the method that is still at work.
func releaseMessage(ctx context.Context, isError bool) {
	if m := messageOf(ctx); m != nil && !isError {
		m.releaseBody()
	}
}
