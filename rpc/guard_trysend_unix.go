// SPDX-License-Identifier: LGPL-3.0-or-later

//go:build unix

package rpc

import "syscall"

// tryWrite writes as much of p as the socket's send buffer takes now. It never
// waits: fewer than len(p) bytes without an error mean that the buffer is full.
func tryWrite(raw syscall.RawConn, p []byte) (n int, err error) {
	outer := raw.Write(func(fd uintptr) (done bool) {
		for n < len(p) {
			var m int
			m, err = syscall.Write(int(fd), p[n:])
			switch {
			case err == syscall.EINTR:
				continue
			case err == syscall.EAGAIN:
				err = nil
				return true
			case err != nil:
				return true
			}
			n += m
		}
		return true
	})
	if err == nil {
		err = outer // closed, or past its deadline
	}
	return n, err
}
