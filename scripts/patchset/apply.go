// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"rpcguard/scripts/patchset/internal/diff"
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
	changed, err := c.git.Lines("diff", "--no-ext-diff", "--no-renames", "--name-only", "-z", "HEAD", "--")
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

type applyOptions struct {
	commit, check, reverse bool
	base                   string
}

// apply puts the whole set onto a checkout, or takes it out: in full or not at
// all.
func (r *repo) apply(dir string, o applyOptions, out io.Writer) error {
	c, err := openCheckout(dir)
	if err != nil {
		return err
	}
	if o.commit && c.git == nil {
		return fmt.Errorf("%s is no git checkout; leave --commit out", dir)
	}
	if err := c.recover(o.check, out); err != nil {
		return err
	}
	if err := c.clean(); err != nil {
		switch only, failed := r.onlyApplied(c, o.base); {
		case failed != nil:
			return failed
		case !only:
			return err
		case o.commit && o.reverse:
			return fmt.Errorf("%s: the patches are in it and were never committed; leave --commit out", dir)
		case o.commit:
			return fmt.Errorf("%s: the patches are in it already and not committed; to have a commit for each, take them out (apply --reverse) and apply anew", dir)
		}
	}
	p, planErr := r.choose(c.tree.Read, o.base, o.reverse)
	if planErr != nil {
		var none *noBase
		if !errors.As(planErr, &none) {
			return planErr
		}
		// The other way round it may fit: then there is nothing to do.
		back, err := r.choose(c.tree.Read, o.base, !o.reverse)
		if err != nil {
			return fmt.Errorf("%s: %w", dir, planErr)
		}
		own, err := c.ownState(back.set)
		if err != nil {
			return err
		}
		switch {
		case o.reverse && len(own.absent) == len(back.set.Own):
			fmt.Fprintf(out, "%s: not applied, nothing to take out\n", dir)
			return nil
		case !o.reverse && len(own.same) == len(back.set.Own):
			fmt.Fprintf(out, "%s: already applied (base %s)\n", dir, back.set.Base)
			return nil
		case !o.reverse:
			return fmt.Errorf("%s: the hooks are in it already, but these own files are not as here: %s\ntake the old state out with the release of rpcguard that put it in (apply --reverse), then apply this one", dir, strings.Join(slices.Concat(own.absent, own.differ), ", "))
		default:
			return fmt.Errorf("%s: the hooks are not in it, but own files are: %s", dir, strings.Join(slices.Concat(own.same, own.differ), ", "))
		}
	}
	own, err := c.ownState(p.set)
	if err != nil {
		return err
	}
	var changes []tree.Change
	for _, path := range slices.Sorted(maps.Keys(p.after)) {
		changes = append(changes, tree.Change{Path: path, Data: []byte(p.after[path])})
	}
	if o.reverse {
		if len(own.differ)+len(own.absent) > 0 {
			return fmt.Errorf("%s: nothing was changed: these own files are not as they were put in: %s", dir, strings.Join(slices.Concat(own.differ, own.absent), ", "))
		}
		for _, f := range p.set.Own {
			changes = append(changes, tree.Change{Path: f.Path, Remove: true})
		}
	} else {
		if len(own.differ) > 0 {
			return fmt.Errorf("%s: nothing was changed: files of these names are there already and are not ours: %s", dir, strings.Join(own.differ, ", "))
		}
		for _, f := range p.set.Own {
			data, err := f.read()
			if err != nil {
				return err
			}
			changes = append(changes, tree.Change{Path: f.Path, Data: data})
		}
	}
	if o.check {
		verb := "applies strictly"
		if o.reverse {
			verb = "comes out in full"
		}
		p.table(out)
		fmt.Fprintf(out, "%s: %s, base %s; nothing was written\n", dir, verb, p.set.Base)
		return nil
	}
	head := ""
	if o.commit {
		if head, err = c.commits(p, o.reverse, changes); err != nil {
			return err
		}
	}
	// From the first file on an interrupt takes everything back.
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(interrupted)
	if err := c.tree.Write(changes, head, interrupted); err != nil {
		return err
	}
	if head != "" {
		if err := c.moveHead(head); err != nil {
			return errors.Join(err, c.tree.Back())
		}
	}
	if err := c.tree.Done(); err != nil {
		return err
	}
	p.table(out)
	verb := "applied"
	if o.reverse {
		verb = "taken out"
	}
	fmt.Fprintf(out, "%s: %s, base %s, %d own files", dir, verb, p.set.Base, len(p.set.Own))
	if head != "" {
		fmt.Fprintf(out, ", committed as %.12s", head)
	}
	fmt.Fprintln(out)
	return nil
}

// recover deals with an apply that was cut off: it finishes one whose commits
// are in place, and takes any other back.
func (c *checkout) recover(readOnly bool, out io.Writer) error {
	pending, head, err := c.tree.Pending()
	if err != nil || !pending {
		return err
	}
	if readOnly {
		return fmt.Errorf("an earlier apply to %s was cut off; the same command without --check puts the tree back first", c.dir)
	}
	if head != "" && c.git != nil {
		if now, err := c.git.Run("rev-parse", "HEAD"); err == nil && now == head {
			fmt.Fprintf(out, "%s: an earlier apply was cut off after its commits; finished\n", c.dir)
			if _, err := c.git.Run("reset", "-q", "--mixed"); err != nil {
				return err
			}
			return c.tree.Done()
		}
	}
	if err := c.tree.Back(); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: an earlier apply was cut off; the tree was put back\n", c.dir)
	return nil
}

// ownState sorts the own files of a set by what a tree has of them.
type ownState struct{ same, differ, absent []string }

func (c *checkout) ownState(s *set) (*ownState, error) {
	st := new(ownState)
	for _, f := range s.Own {
		mine, err := f.read()
		if err != nil {
			return nil, err
		}
		theirs, err := c.tree.Read(f.Path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			st.absent = append(st.absent, f.Path)
		case err != nil:
			return nil, err
		case bytes.Equal(mine, theirs):
			st.same = append(st.same, f.Path)
		default:
			st.differ = append(st.differ, f.Path)
		}
	}
	return st, nil
}

// commits makes the commits without moving the branch: one a patch, own files
// with the patch that brings them; taking out is one commit.
func (c *checkout) commits(p *plan, reverse bool, changes []tree.Change) (string, error) {
	c.git.Committer()
	parent, err := c.git.Run("rev-parse", "--verify", "HEAD")
	if err != nil {
		return "", err
	}
	if reverse {
		one := &plan{set: &set{Patches: []*diff.Patch{{Name: "all", Head: "Subject: rpc, node: take rpcguard out\nReason: All hooks and own files of the patch set, in one step.\nHooks: all\nUpstream-Status: not applicable\n"}}}, steps: []map[string]string{nil}}
		return commitSteps(c.git, parent, one, func(int) ([]tree.Change, error) { return slices.Clone(changes), nil })
	}
	return commitSteps(c.git, parent, p, p.ownChanges)
}

// ownChanges lists the own files that arrive with a patch.
func (p *plan) ownChanges(i int) ([]tree.Change, error) {
	var out []tree.Change
	for _, f := range p.set.Own {
		if p.set.owner(f.Path) != i {
			continue
		}
		data, err := f.read()
		if err != nil {
			return nil, err
		}
		out = append(out, tree.Change{Path: f.Path, Data: data})
	}
	return out, nil
}

func (c *checkout) moveHead(head string) error {
	old, err := c.git.Run("rev-parse", "--verify", "HEAD")
	if err != nil {
		return err
	}
	if _, err := c.git.Run("update-ref", "-m", "patchset apply", "HEAD", head, old); err != nil {
		return err
	}
	if _, err = c.git.Run("reset", "-q", "--mixed"); err != nil {
		// The index is locked, say. The caller puts the files back; so do the commits.
		_, undone := c.git.Run("update-ref", "-m", "patchset apply failed", "HEAD", old, head)
		return errors.Join(err, undone)
	}
	return nil
}

// table prints what each patch does.
func (p *plan) table(out io.Writer) {
	t := newTable("patch", "files", "hunks", "lines", "own files")
	for i, q := range p.set.Patches {
		own := 0
		for _, f := range p.set.Own {
			if p.set.owner(f.Path) == i {
				own++
			}
		}
		t.row(q.Name, len(q.Files), q.Hunks(), q.Touched(), own)
	}
	t.print(out)
}
