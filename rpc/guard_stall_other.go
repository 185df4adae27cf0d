// SPDX-License-Identifier: LGPL-3.0-or-later

//go:build !linux

package rpc

import (
	"net"
	"sync/atomic"
)

// kernelQueue counts completed writes, which writers keep to 64 KiB each: that much
// is known to have found room in the send queue, and no system but Linux says more.
// With a send buffer of 256 KiB that lags behind what the client has taken, by a
// constant, so a client that takes 64 KiB in 60 s is seen to.
type kernelQueue struct {
	written atomic.Uint64
}

// kernelTells says that progress is known while a write is in progress.
const kernelTells = false

func newKernelQueue(net.Conn) *kernelQueue { return new(kernelQueue) }

// wrote adds n bytes that a write has put into the queue.
func (q *kernelQueue) wrote(n int64) { q.written.Add(uint64(n)) }

// tells reports whether progress shows however large the write in progress is.
func (q *kernelQueue) tells() bool { return false }

// left implements sendQueue.
func (q *kernelQueue) left() uint64 { return q.written.Load() }
