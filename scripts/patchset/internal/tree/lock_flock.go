// SPDX-License-Identifier: LGPL-3.0-or-later

//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package tree

import (
	"errors"
	"os"
	"syscall"
)

func hold(name string) (release func(), err error) {
	for {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|syscall.O_NOFOLLOW, 0o644)
		if err != nil {
			return nil, err
		}
		for {
			if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != syscall.EINTR {
				break
			}
		}
		if err != nil {
			f.Close()
			if errors.Is(err, syscall.EWOULDBLOCK) {
				return nil, errHeld
			}
			return nil, &os.PathError{Op: "flock", Path: name, Err: err}
		}
		// The file goes with the lock, so that no tree keeps one. Who had it before may have
		// removed it since it was opened here: then this is the lock of a file without a name.
		mine, err := f.Stat()
		if err != nil {
			f.Close()
			return nil, err
		}
		if now, err := os.Lstat(name); err == nil && os.SameFile(mine, now) {
			return func() { os.Remove(name); f.Close() }, nil
		}
		f.Close()
	}
}
