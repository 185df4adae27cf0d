// SPDX-License-Identifier: LGPL-3.0-or-later

//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd)

package tree

import "os"

// hold goes by what Windows does: a file that a process has open cannot be removed. Where
// it can be, this only keeps two runs apart that begin at the same moment.
func hold(name string) (release func(), err error) {
	if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
		return nil, errHeld
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644)
	if os.IsExist(err) {
		return nil, errHeld
	}
	if err != nil {
		return nil, err
	}
	return func() { f.Close(); os.Remove(name) }, nil
}
