// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// target is a release, or a directory that holds a checkout.
type target struct {
	name string // in the table
	path string // the release, or the directory's absolute path: what a row is kept by
	file string // what its files under build/ are called
	dir  bool
}

// resolve tells what an argument names. Of a directory a copy is made under build/bases,
// and what was there goes: one that holds this repository, or lies where its copies
// lie, is refused before anything is removed.
func (r *repo) resolve(arg string) (target, error) {
	if st, err := os.Stat(arg); err != nil || !st.IsDir() {
		return target{name: arg, path: arg, file: arg}, nil
	}
	real := func(name string) (string, error) {
		name, err := filepath.Abs(name)
		if err == nil {
			name, err = filepath.EvalSymlinks(name)
		}
		return name, err
	}
	dir, err := real(arg)
	if err != nil {
		return target{}, err
	}
	root, err := real(r.root)
	if err != nil {
		return target{}, err
	}
	build, err := real(r.path("build"))
	if err != nil { // there is none yet
		build = filepath.Join(root, "build")
	}
	switch {
	case within(root, dir):
		return target{}, fmt.Errorf("bases: %s holds this repository; name the directory of a checkout of go-ethereum", arg)
	case within(dir, build):
		return target{}, fmt.Errorf("bases: %s lies in this repository's build directory, which holds what was laid; name a checkout elsewhere", arg)
	}
	name := filepath.Base(dir)
	// Of two directories of one name, each has its own copy, node and records.
	sum := sha256.Sum256([]byte(dir))
	return target{name: name, path: dir, file: fmt.Sprintf("%s-%x", name, sum[:4]), dir: true}, nil
}

// within reports whether a path is dir or below it; both are absolute.
func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// state is a digest of what a row is judged by: the patches, own files and, of a
// directory, its Go files. A release does not change, nor does patches/targets matter.
func (r *repo) state(t target) (string, error) {
	h := sha256.New()
	add := func(name, from string) error {
		data, err := os.ReadFile(from)
		if err == nil {
			fmt.Fprintf(h, "%s %d\n", name, len(data))
			_, err = h.Write(data)
		}
		return err
	}
	walk := func(dir string, want func(rel string) bool) error {
		return filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(dir, name)
			switch {
			case err != nil:
				return err
			case e.IsDir() && e.Name() == ".git":
				return filepath.SkipDir
			case !e.Type().IsRegular() || !want(filepath.ToSlash(rel)):
				return nil
			}
			return add(filepath.ToSlash(rel), name)
		})
	}
	if err := walk(r.path("patches"), func(rel string) bool { return rel != "targets" }); err != nil {
		return "", err
	}
	own, err := r.ownFiles()
	if err != nil {
		return "", err
	}
	for _, f := range own {
		if err := add(f.Path, f.From); err != nil {
			return "", err
		}
	}
	if t.dir {
		io.WriteString(h, t.path)
		if err := walk(t.path, func(rel string) bool {
			ext := filepath.Ext(rel)
			return ext == ".go" || ext == ".mod" || ext == ".sum"
		}); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8]), nil
}
