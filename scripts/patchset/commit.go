// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"rpcguard/scripts/patchset/internal/diff"
	"rpcguard/scripts/patchset/internal/git"
	"rpcguard/scripts/patchset/internal/tree"
)

// commitSteps makes one commit for each patch of the plan on top of parent,
// without touching work tree, index or branch, and returns the last one. own,
// unless nil, gives the files that arrive with each patch.
//
// One git fast-import makes them all: a process for each object would take
// longer than everything else that fork does.
func commitSteps(g *git.Repo, parent string, p *plan, own func(i int) ([]tree.Change, error)) (string, error) {
	if len(p.set.Patches) == 0 {
		return parent, nil
	}
	committer, err := g.Run("var", "GIT_COMMITTER_IDENT")
	if err != nil {
		return "", err
	}
	author, err := g.Run("var", "GIT_AUTHOR_IDENT")
	if err != nil {
		return "", err
	}
	executable, err := executables(g, parent)
	if err != nil {
		return "", err
	}
	// The ref is only there for fast-import, which insists on one; what was made is asked
	// for by its mark. Below refs/worktree/ each work tree of a repository has its own.
	const ref = "refs/worktree/rpcguard-import"
	var in bytes.Buffer
	for i, patch := range p.set.Patches {
		var changes []tree.Change
		for path, text := range p.steps[i] {
			changes = append(changes, tree.Change{Path: path, Data: []byte(text)})
		}
		if own != nil {
			more, err := own(i)
			if err != nil {
				return "", err
			}
			changes = append(changes, more...)
		}
		slices.SortFunc(changes, func(a, b tree.Change) int { return cmp.Compare(a.Path, b.Path) })
		msg := message(patch)
		fmt.Fprintf(&in, "commit %s\nmark :%d\nauthor %s\ncommitter %s\ndata %d\n%s\n", ref, i+1, author, committer, len(msg), msg)
		if i == 0 {
			fmt.Fprintf(&in, "from %s\n", parent)
		}
		for _, c := range changes {
			switch {
			case c.Remove:
				fmt.Fprintf(&in, "D %s\n", c.Path)
			case executable[c.Path]:
				fmt.Fprintf(&in, "M 100755 inline %s\ndata %d\n%s\n", c.Path, len(c.Data), c.Data)
			default:
				fmt.Fprintf(&in, "M 100644 inline %s\ndata %d\n%s\n", c.Path, len(c.Data), c.Data)
			}
		}
	}
	fmt.Fprintf(&in, "get-mark :%d\ndone\n", len(p.set.Patches))
	id, err := g.Input(in.Bytes(), "fast-import", "--quiet", "--done", "--force", "--date-format=raw")
	_, left := g.Run("update-ref", "-d", ref)
	return id, errors.Join(err, left)
}

// executables returns the files of a commit that carry the executable bit.
func executables(g *git.Repo, commit string) (map[string]bool, error) {
	list, err := g.Lines("ls-tree", "-r", "-z", commit)
	if err != nil {
		return nil, err
	}
	out := make(map[string]bool)
	for _, l := range list {
		if attr, path, ok := strings.Cut(l, "\t"); ok && strings.HasPrefix(attr, "100755") {
			out[path] = true
		}
	}
	return out, nil
}

// position is where HEAD stands: the branch ("HEAD" where it is detached) and its commit,
// "" before the first one.
type position struct{ ref, commit string }

func (c *checkout) position() (position, error) {
	if c.git == nil {
		return position{}, nil
	}
	if _, err := c.git.Run("rev-parse", "--verify", "--quiet", "HEAD"); err != nil {
		return position{}, nil
	}
	ref, err := c.git.Run("rev-parse", "--symbolic-full-name", "HEAD")
	if err != nil {
		return position{}, err
	}
	commit, err := c.git.Run("rev-parse", "--verify", ref)
	return position{ref, commit}, err
}

func (p position) String() string { return fmt.Sprintf("%s at %.12s", p.ref, p.commit) }

// commits makes the commits on top of a position without moving the branch: one a patch,
// own files with the patch that brings them; taking out is one commit.
func (c *checkout) commits(at position, p *plan, reverse bool, changes []tree.Change) (string, error) {
	c.git.Committer()
	if reverse {
		one := &plan{set: &set{Patches: []*diff.Patch{{Name: "all", Head: "Subject: rpc, node: take rpcguard out\nReason: All hooks and own files of the patch set, in one step.\nHooks: all\nUpstream-Status: not applicable\n"}}}, steps: []map[string]string{nil}}
		return commitSteps(c.git, at.commit, one, func(int) ([]tree.Change, error) { return slices.Clone(changes), nil })
	}
	return commitSteps(c.git, at.commit, p, p.ownChanges)
}

// moveHead moves the branch, and no other one, from where the commits begin to the last
// of them. What somebody committed or checked out since is a refusal.
func (c *checkout) moveHead(from position, head string) error {
	stands := func(want position) error {
		now, err := c.position()
		if err == nil && now != want {
			err = fmt.Errorf("%s: HEAD is %v and was %v: somebody moved it meanwhile; run it again", c.dir, now, want)
		}
		return err
	}
	if err := stands(from); err != nil {
		return err
	}
	move := []string{"update-ref", "-m", "patchset apply"}
	if from.ref == "HEAD" {
		move = append(move, "--no-deref")
	}
	if _, err := c.git.Run(append(move, from.ref, head, from.commit)...); err != nil {
		return err
	}
	err := stands(position{from.ref, head})
	if err == nil {
		_, err = c.git.Run("reset", "-q", "--mixed")
	}
	if err != nil {
		// The index is locked, say. The caller puts the files back; so do the commits.
		move[2] = "patchset apply failed"
		_, undone := c.git.Run(append(move, from.ref, from.commit, head)...)
		return errors.Join(err, undone)
	}
	return nil
}
