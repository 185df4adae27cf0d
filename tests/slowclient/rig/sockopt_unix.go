// SPDX-License-Identifier: LGPL-3.0-or-later

//go:build unix

package rig

import "syscall"

func setBuffers(fd uintptr, rcv, snd int) {
	if rcv > 0 {
		syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, rcv)
	}
	if snd > 0 {
		syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF, snd)
	}
}
