// SPDX-License-Identifier: LGPL-3.0-or-later

//go:build !unix

package rig

func setBuffers(fd uintptr, rcv, snd int) {}
