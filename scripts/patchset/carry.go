// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rpcguard/scripts/patchset/internal/diff"
)

// Edits in the laid tree that are not in patches/ yet exist nowhere else, so they
// are a commit before the tree is brought to another state: refEdits, whose parent
// is the state that was edited. It goes when they are in the tree again; where it
// is found, a run was cut off in between, and it tells what they were, whatever
// the tree looks like by then. What else is taken out of the tree stays under
// refKept, for whoever wants it back.
const (
	refEdits = "refs/rpcguard/edits"
	refKept  = "refs/rpcguard/kept/"
)

// keepEdits makes a commit of the work tree's tracked files on top of what was
// laid, under a ref that keeps it (with its id, where that ends in a slash); "" if
// nothing differs.
func (l *laid) keepEdits(ref, laid string) (string, error) {
	files, err := l.dirtySince(laid)
	if err != nil || len(files) == 0 {
		return "", err
	}
	index := filepath.Join(l.dir, ".git", "rpcguard-edits")
	os.Remove(index)
	defer os.Remove(index)
	g := l.git.With("GIT_INDEX_FILE=" + index)
	if _, err := g.Run("read-tree", laid); err != nil {
		return "", err
	}
	if _, err := g.Input([]byte(strings.Join(files, "\x00")+"\x00"), "update-index", "--add", "--remove", "-z", "--stdin"); err != nil {
		return "", err
	}
	tree, err := g.Run("write-tree")
	if err != nil {
		return "", err
	}
	id, err := l.git.Input([]byte("edits that were not in patches/ yet\n"), "commit-tree", tree, "-p", laid, "-F", "-")
	if err != nil {
		return "", err
	}
	if strings.HasSuffix(ref, "/") {
		ref += id
	}
	_, err = l.git.Run("update-ref", ref, id)
	return id, err
}

// dirtySince lists the tracked files of the work tree that differ from a commit.
func (l *laid) dirtySince(commit string) ([]string, error) {
	if _, err := l.git.Run("update-index", "-q", "--refresh"); err != nil && !strings.Contains(err.Error(), "exit status 1") {
		return nil, err
	}
	return l.git.Lines("diff", "--no-ext-diff", "--no-renames", "--name-only", "-z", commit, "--")
}

// carry works out edited hooks on top of a new state: the edits since the old
// one are placed strictly, as a patch would be. They are those of the work tree,
// or of a commit. It returns the files that differ from the new state. What has no
// place there is a refusal, nothing is lost.
func (l *laid) carry(old, edits, head string) (map[string]string, error) {
	var (
		files []string
		err   error
	)
	if edits == "" {
		files, err = l.dirtySince(old)
	} else {
		files, err = l.git.Lines("diff", "--no-ext-diff", "--no-renames", "--name-only", "-z", old, edits, "--")
	}
	if err != nil {
		return nil, err
	}
	kept := make(map[string]string)
	for _, path := range files {
		refuse := func(why string) error {
			return fmt.Errorf("%s/%s has edits that are not in patches/ yet, and patches/ changed: %s\nset patches/ back and run `patchset refresh`, which writes edits to patches/; --force throws them away", l.rel(), path, why)
		}
		var now string
		if edits == "" {
			data, err := os.ReadFile(filepath.Join(l.dir, filepath.FromSlash(path)))
			if err != nil {
				return nil, refuse("it was removed")
			}
			now = string(data)
		} else if now, err = l.show(edits, path); err != nil {
			return nil, refuse("it was removed")
		}
		was, err1 := l.show(old, path)
		next, err2 := l.show(head, path)
		if err1 != nil || err2 != nil {
			return nil, refuse("it is not upstream's file in both states")
		}
		if now == next {
			continue // refreshed already
		}
		section := diff.Make(path, was, now)
		if section == nil {
			continue
		}
		text, misses := section.Apply(next, false)
		if len(misses) > 0 {
			return nil, refuse(misses[0].Error())
		}
		kept[path] = text
	}
	return kept, nil
}

// cut returns the edits that a run which was cut off left, and the state on which
// they were made; "" if there are none.
func (l *laid) cut() (edits, old string, err error) {
	if edits = l.ref(refEdits); edits == "" {
		return "", "", nil
	}
	if old = l.ref(refEdits + "^"); old == "" {
		return "", "", errors.New(refEdits + " in " + l.rel() + " is no commit of this tool; remove that ref")
	}
	return edits, old, nil
}

// tellCut says that a run was cut off, and keeps what the tree holds apart from
// what is known: the edits, and the states before and after.
func (l *laid) tellCut(edits, old, head string, out io.Writer) error {
	fmt.Fprintf(out, "%s: an earlier run was cut off while edits were carried over; they are taken from commit %.12s\n", l.rel(), edits)
	laid := l.ref(refHead)
	files, err := l.dirtySince(laid)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(files, func(path string) bool {
		data, err := os.ReadFile(filepath.Join(l.dir, filepath.FromSlash(path)))
		return err != nil || !slices.ContainsFunc([]string{edits, old, head}, func(commit string) bool {
			text, err := l.show(commit, path)
			return err == nil && text == string(data)
		})
	}) {
		return nil
	}
	id, err := l.keepEdits(refKept, laid)
	if err == nil {
		fmt.Fprintf(out, "%s: what the tree held besides is kept: git -C %s show %.12s\n", l.rel(), l.rel(), id)
	}
	return err
}
