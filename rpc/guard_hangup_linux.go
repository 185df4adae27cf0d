// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// hungUp reports whether the peer of a connection has closed it, without reading.
// A close behind data that was not read yet shows too.
func hungUp(conn net.Conn) bool {
	for {
		if sc, ok := conn.(syscall.Conn); ok {
			raw, err := sc.SyscallConn()
			if err != nil {
				return true
			}
			gone := false
			err = raw.Control(func(fd uintptr) {
				fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
				n, err := unix.Poll(fds, 0)
				gone = err == nil && n > 0 && fds[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
			})
			return gone || err != nil
		}
		wrapped, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return false
		}
		conn = wrapped.NetConn()
	}
}
