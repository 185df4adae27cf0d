// SPDX-License-Identifier: LGPL-3.0-or-later

//go:build linux

package rpc

import (
	"net"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// kernelQueue asks the kernel how much of a connection's stream the peer has taken.
//
// SIOCOUTQ is what is in the send queue, sent or not, and not acknowledged yet. What
// has left is what was put in less that; while a write is in progress only the
// kernel knows how much was put in. TCP_INFO has the difference at hand: the bytes
// acknowledged. It is used where the kernel fills it in (Linux 4.1 and later; some
// sandboxes do not), and completed writes less SIOCOUTQ elsewhere, which lags behind
// by at most one write, of 64 KiB there (see tells).
type kernelQueue struct {
	raw     syscall.RawConn
	written atomic.Uint64 // completed writes
}

// kernelTells says that progress is known while a write is in progress.
const kernelTells = true

// newKernelQueue returns the send queue of conn, or one that only counts writes if
// conn has none that the kernel can be asked about.
func newKernelQueue(conn net.Conn) *kernelQueue {
	q := new(kernelQueue)
	if sc, ok := socketOf(conn).(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			q.raw = raw
		}
	}
	return q
}

// wrote adds n bytes that a write has put into the queue.
func (q *kernelQueue) wrote(n int64) { q.written.Add(uint64(n)) }

// tells reports whether the kernel counts what was acknowledged, so that progress shows
// however large the write in progress is. The client has acknowledged the answer to
// its handshake by the time it is sent a reply.
func (q *kernelQueue) tells() bool {
	if q.raw == nil {
		return false
	}
	acked := uint64(0)
	q.raw.Control(func(fd uintptr) { acked = ackedBytes(fd) })
	return acked > 0
}

// ackedBytes returns how many bytes the kernel counts as acknowledged by the client, 0
// where it does not count them.
func ackedBytes(fd uintptr) uint64 {
	info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0
	}
	return info.Bytes_acked
}

// left implements sendQueue.
func (q *kernelQueue) left() uint64 {
	written := q.written.Load()
	if q.raw == nil {
		return written
	}
	var out = written
	q.raw.Control(func(fd uintptr) {
		if acked := ackedBytes(fd); acked > 0 {
			out = acked
			return
		}
		if queued, err := unix.IoctlGetInt(int(fd), unix.TIOCOUTQ); err == nil { // SIOCOUTQ by its other name
			out = written - min(written, uint64(max(queued, 0)))
		}
	})
	return out
}
