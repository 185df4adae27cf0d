// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rpcguard/scripts/patchset/internal/git"
)

// laid is the patched tree under build/: a git repository with one commit for
// upstream and one for each patch. Own files are symlinks into this repository,
// untracked there.
//
// refUpstream and refHead remember what was laid last. Commits carry a fixed
// identity and date, so the same release and patches give the same ids: laying
// again is comparing two ids, and a tree in which nothing changed is not
// touched, which keeps Go's cache warm.
type laid struct {
	repo    *repo
	version string
	dir     string
	git     *git.Repo
}

const (
	refUpstream = "refs/rpcguard/upstream"
	refHead     = "refs/rpcguard/head"
	branch      = "refs/heads/rpcguard"
)

// openLaid names the tree of a version, which need not exist yet; "" is the pin.
func (r *repo) openLaid(version string) (*laid, error) {
	pin, err := r.pin()
	if err != nil {
		return nil, err
	}
	if version == "" {
		version = pin
	}
	name := "fork"
	if version != pin {
		name += "-" + version
	}
	l := &laid{repo: r, version: version, dir: r.path("build", name)}
	l.git = &git.Repo{Dir: l.dir}
	return l, nil
}

func (l *laid) ref(name string) string {
	id, err := l.git.Run("rev-parse", "--verify", "--quiet", name)
	if err != nil {
		return ""
	}
	return id
}

// rel is the tree's name for messages.
func (l *laid) rel() string {
	if rel, err := filepath.Rel(l.repo.root, l.dir); err == nil {
		return filepath.ToSlash(rel)
	}
	return l.dir
}

// dirty lists the tracked files that differ from what was laid, commits on top
// of it included.
func (l *laid) dirty() ([]string, error) {
	return l.dirtySince(l.ref(refHead))
}

// lay brings the tree to the pinned (or another) release with all patches in.
func (l *laid) lay(base string, force bool, out io.Writer) error {
	if err := os.MkdirAll(l.dir, 0o755); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(l.dir, ".git")); errors.Is(err, fs.ErrNotExist) {
		if entries, err := os.ReadDir(l.dir); err != nil || len(entries) > 0 {
			return fmt.Errorf("%s exists and was not laid by this tool; remove it first", l.rel())
		}
		if _, err := l.git.Run("init", "-q", "-b", "rpcguard", "."); err != nil {
			return err
		}
	}
	info := filepath.Join(l.dir, ".git", "info")
	if err := os.MkdirAll(info, 0o755); err != nil {
		return err
	}
	// Upstream's .gitattributes would turn line ends around: contents stay as
	// they are in the module.
	if err := os.WriteFile(filepath.Join(info, "attributes"), []byte("* -text\n"), 0o644); err != nil {
		return err
	}
	upstream, src, err := l.importUpstream()
	if err != nil {
		return err
	}
	p, err := l.repo.planFor(src, base)
	if err != nil {
		return err
	}
	head, err := commitSteps(l.git, upstream, p, nil)
	if err != nil {
		return err
	}
	laidHead := l.ref(refHead)
	edits, old, err := l.cut()
	if err != nil && !force {
		return err
	}
	if edits == "" {
		old = laidHead
	}
	move := laidHead != head || force || edits != ""
	var kept map[string]string
	if laidHead != "" && move && !force {
		if kept, err = l.carry(old, edits, head); err != nil {
			return err
		}
	}
	if err := l.checkLinks(p.set, force); err != nil {
		return err
	}
	// From here to the end a kill must find the edits somewhere.
	if laidHead != "" && move && !force {
		if edits == "" {
			_, err = l.keepEdits(refEdits, old)
		} else {
			err = l.tellCut(edits, old, head, out)
		}
		if err != nil {
			return err
		}
	}
	if move {
		if _, err := l.git.Run("symbolic-ref", "HEAD", branch); err != nil {
			return err
		}
		if _, err := l.git.Run("reset", "-q", "--hard", head); err != nil {
			return err
		}
		if _, err := l.git.Run("update-ref", refHead, head); err != nil {
			return err
		}
	}
	for _, path := range slices.Sorted(maps.Keys(kept)) {
		if err := os.WriteFile(filepath.Join(l.dir, filepath.FromSlash(path)), []byte(kept[path]), 0o644); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s/%s: edits carried over\n", l.rel(), path)
	}
	if l.ref(refEdits) != "" {
		if _, err := l.git.Run("update-ref", "-d", refEdits); err != nil {
			return err
		}
	}
	linked, removed, err := l.link(p.set)
	if err != nil {
		return err
	}
	hunks := 0
	for _, patch := range p.set.Patches {
		hunks += patch.Hunks()
	}
	state := "laid"
	if laidHead == head {
		state = "unchanged"
	}
	fmt.Fprintf(out, "%s: %s %s, base %s, %d patches, %d hunks, %d own files (%d links new, %d stale removed)\n",
		l.rel(), l.version, state, p.set.Base, len(p.set.Patches), hunks, len(p.set.Own), linked, removed)
	return nil
}

// show returns a file of a commit, byte for byte.
func (l *laid) show(commit, path string) (string, error) {
	return l.git.Raw("cat-file", "blob", commit+":"+path)
}

// importUpstream makes the root commit of the release, straight from the module
// cache, unless it is there already.
func (l *laid) importUpstream() (commit, src string, err error) {
	src, sum, err := l.repo.upstream(l.version)
	if err != nil {
		return "", "", err
	}
	msg := fmt.Sprintf("go-ethereum %s\n\nModule checksum %s\n", l.version, sum)
	if have := l.ref(refUpstream); have != "" {
		if old, err := l.git.Run("log", "-1", "--format=%B", have); err == nil && strings.TrimSpace(old) == strings.TrimSpace(msg) {
			return have, src, nil
		}
	}
	index := filepath.Join(l.dir, ".git", "rpcguard-index")
	os.Remove(index)
	defer os.Remove(index)
	g := l.git.With("GIT_INDEX_FILE="+index, "GIT_DIR="+filepath.Join(l.dir, ".git"), "GIT_WORK_TREE="+src)
	if _, err := g.Run("-c", "core.looseCompression=0", "add", "--force", "--all", "."); err != nil {
		return "", "", err
	}
	id, err := g.Run("write-tree")
	if err != nil {
		return "", "", err
	}
	commit, err = l.git.Input([]byte(msg), "commit-tree", id, "-F", "-")
	if err != nil {
		return "", "", err
	}
	_, err = l.git.Run("update-ref", refUpstream, commit)
	return commit, src, err
}
