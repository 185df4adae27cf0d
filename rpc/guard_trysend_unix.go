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

// tryRead reads what has come, without waiting. more is false if nothing has, and then
// nothing was read.
func tryRead(raw syscall.RawConn, p []byte) (n int, more bool) {
	raw.Read(func(fd uintptr) (done bool) {
		for {
			var err error
			if n, err = syscall.Read(int(fd), p); err != syscall.EINTR {
				return true
			}
		}
	})
	return max(n, 0), n > 0
}
