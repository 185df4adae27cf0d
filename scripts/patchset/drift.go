// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"rpcguard/scripts/patchset/internal/diff"
)

// site is a place in a tree that the hooks have to know of.
type site struct {
	kind string // what it is, see siteKinds
	path string
	line int
	decl string
	text string
}

// siteKinds says why each kind matters, and what to look at.
var siteKinds = []struct{ kind, why string }{
	{"server", "a server of RPC: without a guard given to it, it is stock; RPCHandler's is the in-process one, which trusts whoever reaches it"},
	{"entry", "an entry point for requests that goes past the guarded ones"},
	{"http", "HTTP served by a package that uses package rpc: if its handler leads to a server of RPC, nothing is limited on the way"},
	{"notifier", "a subscription: its events pass Notifier.Notify, one at a time; what one event of the node is, only a hook here can say"},
	{"blocking send", "it waits for one of many receivers: one that is slow, or left with its channel full, holds up all; give it a way out that is that receiver's own, or a queue"},
	{"queue", "a list that a client makes grow and only a poll empties, or an id for one"},
}

const lookedFor = "looked for, by name and form: uses of Notifier, servers and entry points of RPC, HTTP served beside them, sends in loops over receivers, and in package filters every send that waits and every list that grows"

// drift compares a tree with the pinned release, whose sites are known: it lists those
// of the tree that the release does not have. Finding any is an error, so that a script
// notices; none means that these kinds were looked for.
func (r *repo) drift(dir string, out io.Writer) error {
	version, err := r.pin()
	if err != nil {
		return err
	}
	src, _, err := r.upstream(version)
	if err != nil {
		return err
	}
	ours, err := r.allOwn()
	if err != nil {
		return err
	}
	// What a hook took out of a patched tree is no credit for something new in the same
	// place, so that such a tree is compared with the patched release.
	var hooked map[string]string
	than := version
	for name := range ours {
		if st, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name))); err != nil || !st.Mode().IsRegular() {
			continue
		}
		p, err := r.planFor(src, mainBase)
		if err != nil {
			return err
		}
		hooked, than = p.after, version+" with the patches in"
		break
	}
	known, err := surveyTree(src, ours, hooked)
	if err != nil {
		return err
	}
	found, err := surveyTree(dir, ours, nil)
	if err != nil {
		return err
	}
	if found.files == 0 {
		return fmt.Errorf("%s holds no Go files", dir)
	}
	fresh := newSites(found.sites, known.sites)
	fmt.Fprintf(out, "%s: %d Go files, %d sites, %d of them not in %s\n", dir, found.files, len(found.sites), len(fresh), than)
	for _, s := range found.skipped {
		fmt.Fprintf(out, "not looked into: %s\n", s)
	}
	if len(fresh) == 0 {
		fmt.Fprintln(out, lookedFor)
		return nil
	}
	for _, k := range siteKinds {
		t := newTable()
		t.rows = nil
		for _, s := range fresh {
			if s.kind == k.kind {
				t.row(fmt.Sprintf("  %s:%d", s.path, s.line), s.decl, s.text)
			}
		}
		if len(t.rows) > 0 {
			fmt.Fprintf(out, "\n%s: %s\n", k.kind, k.why)
			t.print(out)
		}
	}
	return fmt.Errorf("%d call sites that no hook knows; see docs/MAINTAIN.md", len(fresh))
}

// newSites are those of the first list that the second has not. A site is known if that
// has one of the kind in the same declaration; a hook renames some of these.
func newSites(found, known []site) []site {
	key := func(s site) string {
		return s.kind + "|" + s.path + "|" + strings.ToLower(strings.TrimSuffix(s.decl, "Unguarded"))
	}
	have := make(map[string]int)
	for _, s := range known {
		have[key(s)]++
	}
	return slices.DeleteFunc(slices.Clone(found), func(s site) bool {
		have[key(s)]--
		return have[key(s)] >= 0
	})
}

// allOwn names the own files that any base has.
func (r *repo) allOwn() (map[string]bool, error) {
	bases, err := r.bases()
	if err != nil {
		return nil, err
	}
	ours := make(map[string]bool)
	for _, base := range bases {
		s, err := r.load(base)
		if err != nil {
			return nil, err
		}
		for _, f := range s.Own {
			ours[f.Path] = true
		}
	}
	return ours, nil
}

// parsed is a file of a tree.
type parsed struct {
	path  string
	file  *ast.File
	lines []string
}

// survey is what a tree was found to have.
type survey struct {
	sites   []site
	files   int
	skipped []string // what was not looked into
}

// surveyTree reads all Go files of a tree but tests, own files and other modules. What
// stands in instead is read in place of the tree's own file of that name.
func surveyTree(dir string, ours map[string]bool, instead map[string]string) (*survey, error) {
	var (
		v     survey
		fset  = token.NewFileSet()
		files []parsed
	)
	serves := make(map[string]bool) // directories of packages that have to do with RPC
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if e.IsDir() {
			if rel == "." {
				return nil
			}
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
				v.skipped = append(v.skipped, rel+", a module of its own")
				return filepath.SkipDir
			}
			if e.Name() == "vendor" {
				v.skipped = append(v.skipped, rel)
				return filepath.SkipDir
			}
			// What the go command does not look into either.
			if e.Name() == "testdata" || e.Name()[0] == '.' || e.Name()[0] == '_' {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go") || ours[rel] {
			return nil
		}
		if st, err := os.Stat(name); err != nil || !st.Mode().IsRegular() {
			return err
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if text, ok := instead[rel]; ok {
			data = []byte(text)
		}
		file, err := parser.ParseFile(fset, rel, data, parser.SkipObjectResolution)
		if err != nil {
			return errors.Join(fmt.Errorf("%s is not read", rel), err)
		}
		files = append(files, parsed{rel, file, diff.Split(string(data))})
		if file.Name.Name == "rpc" || slices.Contains(slices.Collect(maps.Values(imports(file))), rpcPackage) {
			serves[path.Dir(rel)] = true
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	v.files = len(files)
	for _, p := range files {
		decls := diff.Decls(p.path, p.lines)
		s := &scanner{serves: serves[path.Dir(p.path)]}
		s.add = func(kind string, pos token.Pos) {
			line := fset.Position(pos).Line
			v.sites = append(v.sites, site{kind, p.path, line, decls[line-1], strings.TrimSpace(p.lines[line-1])})
		}
		s.scan(p.file)
	}
	return &v, nil
}
