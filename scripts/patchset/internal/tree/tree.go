// SPDX-License-Identifier: LGPL-3.0-or-later

// Package tree reads and changes a directory of somebody else: in full or not
// at all, and never through a symlink.
package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Tree is a directory whose files are named by slash-separated relative paths.
type Tree struct {
	root    string
	journal string
}

// Open names a directory that has to exist. The journal of a change is kept in
// it under journal, which is "" where nothing will be written.
func Open(dir, journal string) (*Tree, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		return nil, fmt.Errorf("no directory %s", dir)
	}
	if st, err := os.Stat(abs); err != nil || !st.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", dir)
	}
	return &Tree{root: abs, journal: journal}, nil
}

// Root is the directory's absolute path.
func (t *Tree) Root() string { return t.root }

// real checks that no part of a path below the root is a symlink and returns
// where it is. What does not exist yet passes.
func (t *Tree) real(path string) (string, error) {
	if !filepath.IsLocal(filepath.FromSlash(path)) {
		return "", fmt.Errorf("%s leads out of the tree", path)
	}
	at := t.root
	for part := range strings.SplitSeq(path, "/") {
		at = filepath.Join(at, part)
		st, err := os.Lstat(at)
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return "", err
		}
		if st.Mode()&fs.ModeSymlink != 0 {
			return "", fmt.Errorf("%s: %s is a symlink, and nothing is read or written through one", path, strings.TrimPrefix(at, t.root+string(filepath.Separator)))
		}
	}
	return filepath.Join(t.root, filepath.FromSlash(path)), nil
}

// Read returns a file's contents; the error is fs.ErrNotExist if there is none.
func (t *Tree) Read(path string) ([]byte, error) {
	at, err := t.real(path)
	if err != nil {
		return nil, err
	}
	st, err := os.Lstat(at)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	return os.ReadFile(at)
}
