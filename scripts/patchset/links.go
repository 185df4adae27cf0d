// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// target is what the link of an own file holds: a relative path, so that a
// repository may be moved with its build directory.
func (l *laid) target(f ownFile) (at, to string, err error) {
	at = filepath.Join(l.dir, filepath.FromSlash(f.Path))
	to, err = filepath.Rel(filepath.Dir(at), f.From)
	return at, to, err
}

// checkLinks finds what stands in the way of links before anything is written.
func (l *laid) checkLinks(s *set, force bool) error {
	tracked, err := l.git.Lines("ls-tree", "-r", "--name-only", "-z", l.ref(refUpstream))
	if err != nil {
		return err
	}
	upstream := make(map[string]bool, len(tracked))
	for _, p := range tracked {
		upstream[p] = true
	}
	for _, f := range s.Own {
		if upstream[f.Path] {
			return fmt.Errorf("own file %s: %s has a file of that name; choose another", f.Path, l.version)
		}
		at, _, err := l.target(f)
		if err != nil {
			return err
		}
		st, err := os.Lstat(at)
		if err != nil || !st.Mode().IsRegular() || force || s.raised {
			continue
		}
		mine, err := f.read()
		if err != nil {
			return err
		}
		theirs, err := os.ReadFile(at)
		if err != nil {
			return err
		}
		if !bytes.Equal(mine, theirs) {
			return fmt.Errorf("%s/%s is a regular file with other contents than %s (an editor put it in place of the link)\n`patchset refresh` takes it back, --force throws it away", l.rel(), f.Path, f.Path)
		}
	}
	return nil
}

// link puts every own file's link in place and removes links whose file is
// gone. Links that are right are not touched. In a tree of an older language
// own files are read-only copies instead.
func (l *laid) link(s *set) (made, removed int, err error) {
	// Copies, unlike links, do not tell by themselves that they are ours: the list
	// of the last time does.
	listName := filepath.Join(l.dir, ".git", "info", "exclude")
	last, err := os.ReadFile(listName)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, 0, err
	}
	var exclude strings.Builder
	if s.raised {
		exclude.WriteString(copiedMark + "\n")
	} else {
		exclude.WriteString("# own files, linked in by patchset\n")
	}
	want := make(map[string]bool)
	for _, f := range s.Own {
		want[f.Path] = true
		fmt.Fprintf(&exclude, "/%s\n", f.Path)
		at, to, err := l.target(f)
		if err != nil {
			return 0, 0, err
		}
		var data []byte
		if s.raised {
			if data, err = f.read(); err != nil {
				return 0, 0, err
			}
			st, err := os.Lstat(at)
			if have, readErr := os.ReadFile(at); err == nil && st.Mode().IsRegular() && readErr == nil && bytes.Equal(have, data) {
				continue
			}
		} else if have, err := os.Readlink(at); err == nil && have == to {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return 0, 0, err
		}
		if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, 0, err
		}
		if s.raised {
			err = os.WriteFile(at, data, 0o444) // a copy; the original is what to edit
		} else {
			err = os.Symlink(to, at)
		}
		if err != nil {
			return 0, 0, err
		}
		made++
	}
	if list, ok := strings.CutPrefix(string(last), copiedMark+"\n"); ok {
		for line := range strings.SplitSeq(list, "\n") {
			path := strings.TrimPrefix(line, "/")
			if path == "" || want[path] {
				continue
			}
			if err := os.Remove(filepath.Join(l.dir, filepath.FromSlash(path))); err == nil {
				removed++
			}
		}
	}
	for _, dir := range overlay {
		err := filepath.WalkDir(filepath.Join(l.dir, dir), func(name string, e fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || e.Type()&fs.ModeSymlink == 0 {
				return err
			}
			rel, err := filepath.Rel(l.dir, name)
			if err != nil || want[filepath.ToSlash(rel)] || !l.ours(name) {
				return err
			}
			removed++
			return os.Remove(name)
		})
		if err != nil {
			return made, removed, err
		}
	}
	return made, removed, os.WriteFile(listName, []byte(exclude.String()), 0o644)
}

// copiedMark begins the list of own files in a tree that has copies of them.
const copiedMark = "# own files, copied in by patchset"

// ours tells whether a link leads into this repository, outside build/.
func (l *laid) ours(name string) bool {
	to, err := os.Readlink(name)
	if err != nil {
		return false
	}
	if !filepath.IsAbs(to) {
		to = filepath.Join(filepath.Dir(name), to)
	}
	rel, err := filepath.Rel(l.repo.root, to)
	return err == nil && filepath.IsLocal(rel) && !strings.HasPrefix(rel, "build"+string(filepath.Separator))
}

// takeBack moves regular files that stand where links belong, and new Go files
// in overlay directories, into this repository and links them. It returns their
// paths.
func (l *laid) takeBack(s *set) ([]string, error) {
	if s.raised {
		return nil, nil
	}
	own := s.Own
	added, err := l.git.Lines(append([]string{"ls-files", "-z", "--others", "--exclude-standard", "--"}, overlay...)...)
	if err != nil {
		return nil, err
	}
	known := make(map[string]bool)
	for _, f := range own {
		known[f.Path] = true
	}
	for _, p := range added {
		if strings.HasSuffix(p, ".go") && !known[p] {
			own = append(own, ownFile{Path: p, From: l.repo.path(filepath.FromSlash(p))})
		}
	}
	var taken []string
	for _, f := range own {
		at, to, err := l.target(f)
		if err != nil {
			return taken, err
		}
		st, err := os.Lstat(at)
		if err != nil || !st.Mode().IsRegular() {
			continue
		}
		theirs, err := os.ReadFile(at)
		if err != nil {
			return taken, err
		}
		mine, err := os.ReadFile(f.From)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return taken, err
		}
		if err == nil && !bytes.Equal(mine, theirs) {
			if mst, err := os.Stat(f.From); err == nil && mst.ModTime().After(st.ModTime()) {
				return taken, fmt.Errorf("%s changed in the repository after %s/%s took the link's place: two versions; merge them by hand and remove one", f.Path, l.rel(), f.Path)
			}
		}
		if err != nil || !bytes.Equal(mine, theirs) {
			if err := os.MkdirAll(filepath.Dir(f.From), 0o755); err != nil {
				return taken, err
			}
			tmp := f.From + ".rpcguard-tmp"
			if err := os.WriteFile(tmp, theirs, 0o644); err != nil {
				return taken, err
			}
			if err := os.Rename(tmp, f.From); err != nil {
				return taken, err
			}
			taken = append(taken, f.Path)
		}
		if err := os.Remove(at); err != nil {
			return taken, err
		}
		if err := os.Symlink(to, at); err != nil {
			return taken, err
		}
	}
	return taken, nil
}
