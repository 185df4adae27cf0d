// SPDX-License-Identifier: LGPL-3.0-or-later

package tree

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// errHeld is what hold returns where a living process has the lock.
var errHeld = errors.New("held")

// Lock keeps other runs off the tree until release is called or the process ends,
// however it ends. A process number in a file would not do: numbers are given out again.
func (t *Tree) Lock() (release func(), err error) {
	name := filepath.Join(t.root, t.journal) + ".lock"
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return nil, err
	}
	release, err = hold(name)
	if errors.Is(err, errHeld) {
		return nil, fmt.Errorf("%s is being changed by another run of patchset (it holds %s); wait for it to end", t.root, name)
	}
	if err != nil {
		return nil, fmt.Errorf("%s cannot be locked against other runs: %w", t.root, err)
	}
	return release, nil
}
