// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"rpcguard/scripts/patchset/internal/tree"
)

// compileSteps puts the patches onto a release one after another, each with the own
// files that arrive with it, and compiles after each one the packages that have been
// touched so far, tests included. A series is only fit to be bisected, or taken in
// part, if every step of it stands.
func (r *repo) compileSteps(version string, out io.Writer) error {
	if version == "" {
		var err error
		if version, err = r.pin(); err != nil {
			return err
		}
	}
	src, _, err := r.upstream(version)
	if err != nil {
		return err
	}
	p, err := r.planFor(src, "")
	if err != nil {
		return err
	}
	dir := r.path("build", "steps")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := copyTree(src, dir); err != nil {
		return err
	}
	put := func(name string, data []byte) error {
		at := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		return os.WriteFile(at, data, 0o644)
	}
	packages := make(map[string]bool)
	for i, patch := range p.set.Patches {
		own, err := p.ownChanges(i)
		if err != nil {
			return err
		}
		for name, text := range p.steps[i] {
			own = append(own, tree.Change{Path: name, Data: []byte(text)})
		}
		for _, c := range own {
			if err := put(c.Path, c.Data); err != nil {
				return err
			}
			if strings.HasSuffix(c.Path, ".go") {
				packages["./"+path.Dir(c.Path)] = true
			}
		}
		// Of vet's checks the one that costs nothing: it compiles tests, too.
		args := append([]string{"vet", "-buildtag"}, slices.Sorted(maps.Keys(packages))...)
		if text, err := goRun(dir, args...); err != nil {
			return fmt.Errorf("the series does not compile up to and with %s.patch (see its Files: and Hooks:):\n%s", patch.Name, text)
		}
		fmt.Fprintf(out, "%d/%d %s: compiles, %d packages\n", i+1, len(p.set.Patches), patch.Name, len(packages))
	}
	return nil
}
