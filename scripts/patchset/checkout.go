// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"rpcguard/scripts/patchset/internal/git"
	"rpcguard/scripts/patchset/internal/tree"
)

// checkout is somebody else's tree of geth or of a fork, with or without git.
type checkout struct {
	dir  string
	tree *tree.Tree
	git  *git.Repo // nil for a plain directory
}

func openCheckout(dir string) (*checkout, error) {
	journal := ".rpcguard-journal"
	t, err := tree.Open(dir, "")
	if err != nil {
		return nil, err
	}
	c := &checkout{dir: dir}
	if _, err := os.Lstat(filepath.Join(t.Root(), ".git")); err == nil {
		c.git = &git.Repo{Dir: t.Root(), Foreign: true}
		private, err := c.git.Run("rev-parse", "--absolute-git-dir")
		if err != nil {
			return nil, err
		}
		if rel, err := filepath.Rel(t.Root(), filepath.Join(private, "rpcguard-journal")); err == nil {
			journal = rel
		}
		if _, err := c.git.Run("rev-parse", "--verify", "--quiet", refHead); err == nil {
			return nil, fmt.Errorf("%s was laid by `patchset fork`: the patches are in it, its own files are links", dir)
		}
	}
	if c.tree, err = tree.Open(dir, journal); err != nil {
		return nil, err
	}
	data, err := c.tree.Read("go.mod")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has no go.mod: not a checkout of go-ethereum or a fork of it", dir)
	}
	if err != nil {
		return nil, err
	}
	name := ""
	for line := range strings.SplitSeq(string(data), "\n") {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "module" {
			name = f[1]
		}
	}
	if name != module {
		return nil, fmt.Errorf("%s is module %q; the own files import %s, so only a tree of that module path takes them", dir, name, module)
	}
	return c, nil
}

// clean refuses tracked files with changes: an apply that goes wrong must never
// be mixed up with somebody's work.
func (c *checkout) clean() error {
	if c.git == nil {
		return nil
	}
	out, err := c.git.Run("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=all")
	if err != nil {
		return err
	}
	if out == "" {
		return nil
	}
	lines := strings.Split(out, "\n")
	more := ""
	if len(lines) > 5 {
		more = fmt.Sprintf("\n  and %d more", len(lines)-5)
		lines = lines[:5]
	}
	return fmt.Errorf("%s has changes that are not committed; commit or stash them first:\n  %s%s", c.dir, strings.Join(lines, "\n  "), more)
}

// onlyApplied reports whether what is not committed is an apply without --commit, and
// nothing else: that is nobody's work, and comes out again as it went in.
func (r *repo) onlyApplied(c *checkout, base string) (bool, error) {
	p, err := r.choose(c.tree.Read, base, true)
	if err != nil {
		return false, nil
	}
	own := make(map[string]bool)
	for _, f := range p.set.Own {
		own[f.Path] = true
	}
	changed, err := c.git.Lines("diff", "--no-ext-diff", "--no-renames", "--ignore-submodules=all", "--name-only", "-z", "HEAD", "--")
	if err != nil {
		return false, err
	}
	for _, path := range changed {
		if own[path] {
			continue // staged; whether it is as it was put in is looked at later
		}
		upstream, ok := p.after[path]
		if !ok {
			return false, nil
		}
		if head, err := c.git.Raw("cat-file", "blob", "HEAD:"+path); err != nil || head != upstream {
			return false, err
		}
	}
	return true, nil
}

// asCommitted refuses files that are not as the commit has them: git was told not to look
// at some, and the plan, which reads the work tree, would carry what is private in them
// into the commits. What only an apply without --commit put in may come out again.
func (c *checkout) asCommitted(at position, p *plan, changes []tree.Change, o applyOptions) error {
	if at.commit == "" {
		return nil
	}
	paths := make([]string, len(changes))
	for i, change := range changes {
		paths[i] = change.Path
	}
	blobs, err := c.blobs(at.commit, paths)
	if err != nil {
		return err
	}
	var hidden []string
	for _, change := range changes {
		head, ok := blobs[change.Path]
		is := func(missing bool, data []byte) bool { return ok != missing && bytes.Equal(head, data) }
		_, upstream := p.before[change.Path]
		switch {
		case is(change.Was == nil, change.Was):
		case o.reverse && !o.commit && is(change.Remove, change.Data):
		case !upstream && !ok: // an own file that is there and was never committed
		default:
			hidden = append(hidden, change.Path)
		}
	}
	if len(hidden) > 0 {
		return fmt.Errorf("%s: nothing was changed: these files are not as HEAD has them, though git tells of no changes: %s\n"+
			"`git ls-files -v` marks those it was told not to look at (h, S); take that back with git update-index --no-assume-unchanged or --no-skip-worktree, then commit or stash them", c.dir, strings.Join(hidden, ", "))
	}
	return nil
}

// blobs reads files of a commit byte for byte; those it has not are left out.
func (c *checkout) blobs(commit string, paths []string) (map[string][]byte, error) {
	var in strings.Builder
	for _, path := range paths {
		fmt.Fprintf(&in, "%s:%s\n", commit, path)
	}
	rest, err := c.git.Input([]byte(in.String()), "cat-file", "--batch")
	if err != nil {
		return nil, err
	}
	out := make(map[string][]byte)
	for _, path := range paths {
		line, after, _ := strings.Cut(rest, "\n")
		rest = after
		if strings.HasSuffix(line, " missing") {
			continue
		}
		size := -1
		if f := strings.Fields(line); len(f) == 3 {
			if n, err := strconv.Atoi(f[2]); err == nil {
				size = n
			}
		}
		if size < 0 || size > len(rest) {
			return nil, fmt.Errorf("git cat-file in %s: %q for %s", c.git.Dir, line, path)
		}
		out[path] = []byte(rest[:size])
		rest = strings.TrimPrefix(rest[size:], "\n")
	}
	return out, nil
}

// recover deals with an apply that was cut off: it finishes one whose commits
// are in place, and takes any other back.
func (c *checkout) recover(readOnly bool, out io.Writer) error {
	pending, head, err := c.tree.Pending()
	if err != nil || !pending {
		return err
	}
	if readOnly {
		release, err := c.tree.Lock() // is it cut off, or under way?
		if err != nil {
			return err
		}
		release()
		return fmt.Errorf("an earlier apply to %s was cut off; the same command without --check puts the tree back first", c.dir)
	}
	if head != "" && c.git != nil {
		// Whoever went on from there has them in place, too.
		if _, err := c.git.Run("merge-base", "--is-ancestor", head, "HEAD"); err == nil {
			if now, err := c.git.Run("rev-parse", "HEAD"); err == nil && now == head {
				if _, err := c.git.Run("reset", "-q", "--mixed"); err != nil {
					return err
				}
			}
			if err := c.tree.Done(); err != nil {
				return err
			}
			fmt.Fprintf(out, "%s: an earlier apply was cut off after its commits; finished\n", c.dir)
			return nil
		}
	}
	if err := c.tree.Back(); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: an earlier apply was cut off; the tree was put back\n", c.dir)
	return nil
}
