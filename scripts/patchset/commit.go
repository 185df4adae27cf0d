// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

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
	// The ref is only there for fast-import, which insists on one.
	const ref = "refs/rpcguard/import"
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
		fmt.Fprintf(&in, "commit %s\nauthor %s\ncommitter %s\ndata %d\n%s\n", ref, author, committer, len(msg), msg)
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
	in.WriteString("done\n")
	if _, err := g.Input(in.Bytes(), "fast-import", "--quiet", "--done", "--force", "--date-format=raw"); err != nil {
		return "", err
	}
	id, err := g.Run("rev-parse", "--verify", ref)
	if err != nil {
		return "", err
	}
	_, err = g.Run("update-ref", "-d", ref)
	return id, err
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
