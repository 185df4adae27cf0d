// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"fmt"
	"io"

	"rpcguard/scripts/patchset/internal/tree"
)

// patchesJournal is where the journal of a change of patches/ lies.
const patchesJournal = "build/.rpcguard-journal"

// putBack undoes a refresh that was cut off between two patches: until then
// patches/ is no state that anybody made. The edits are in build/fork still.
func (r *repo) putBack(out io.Writer) error {
	t, err := tree.Open(r.root, patchesJournal)
	if err != nil {
		return err
	}
	if pending, _, err := t.Pending(); err != nil || !pending {
		return err
	}
	release, err := r.hold(out) // refused where the refresh is under way
	if err != nil {
		return err
	}
	release()
	return nil
}

// hold keeps other runs off patches/ and build/ until release is called, and puts back
// what is to be put back first.
func (r *repo) hold(out io.Writer) (release func(), err error) {
	t, err := tree.Open(r.root, patchesJournal)
	if err != nil {
		return nil, err
	}
	if release, err = t.Lock(); err != nil {
		return nil, err
	}
	pending, _, err := t.Pending()
	if err == nil && pending {
		if err = t.Back(); err == nil {
			fmt.Fprintln(out, "an earlier refresh was cut off; patches/ was put back as it was before, and the edits are in the laid tree still")
		}
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}
