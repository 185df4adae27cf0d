// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"rpcguard/scripts/patchset/internal/diff"
	"rpcguard/scripts/patchset/internal/git"
)

// module is the upstream module, whose require line in go.mod is the pin.
const module = "github.com/ethereum/go-ethereum"

// mainBase names what lies in patches/ itself.
const mainBase = "geth"

// overlay lists the directories of this repository whose files join upstream's
// packages of the same path.
var overlay = []string{"rpc", "eth", "node", "cmd", "graphql", "ethclient", "internal"}

// repo is this repository.
type repo struct {
	root string
}

// findRepo looks upwards from the working directory for the repository.
func findRepo() (*repo, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	for {
		if data, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil {
			if strings.Contains(string(data), "\nmodule rpcguard\n") || strings.HasPrefix(string(data), "module rpcguard\n") {
				return &repo{root: dir}, nil
			}
		}
		up := filepath.Dir(dir)
		if up == dir {
			return nil, errors.New("not inside the rpcguard repository; run it from there (flag -C DIR)")
		}
		dir = up
	}
}

func (r *repo) path(parts ...string) string {
	return filepath.Join(append([]string{r.root}, parts...)...)
}

func (r *repo) git() *git.Repo { return &git.Repo{Dir: r.root, Foreign: true} }

// pin returns the upstream version that go.mod requires.
func (r *repo) pin() (string, error) {
	data, err := os.ReadFile(r.path("go.mod"))
	if err != nil {
		return "", err
	}
	for line := range strings.SplitSeq(string(data), "\n") {
		f := strings.Fields(line)
		if len(f) > 0 && f[0] == "require" {
			f = f[1:]
		}
		if len(f) >= 2 && f[0] == module {
			return f[1], nil
		}
	}
	return "", fmt.Errorf("go.mod does not require %s: the line that names the pinned release is missing", module)
}

// upstream brings a release into the module cache and returns where it lies
// and its checksum. The pinned one has to have the checksum of go.sum; any
// release is checked by the go command against the checksum database.
func (r *repo) upstream(version string) (dir, sum string, err error) {
	pin, err := r.pin()
	if err != nil {
		return "", "", err
	}
	// Read before the go command runs, which adds what is missing.
	sums, err := os.ReadFile(r.path("go.sum"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", "", err
	}
	want := ""
	for line := range strings.SplitSeq(string(sums), "\n") {
		if f := strings.Fields(line); len(f) == 3 && f[0] == module && f[1] == version {
			want = f[2]
		}
	}
	if want == "" && version == pin {
		return "", "", fmt.Errorf("go.sum has no checksum of %s %s; `go mod tidy` writes it", module, pin)
	}
	cmd := exec.Command("go", "mod", "download", "-json", module+"@"+version)
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	runErr := cmd.Run()
	var info struct{ Dir, Sum, Version, Error string }
	if err := json.Unmarshal(out.Bytes(), &info); err != nil {
		return "", "", fmt.Errorf("go mod download %s@%s: %v: %s", module, version, runErr, strings.TrimSpace(errs.String()))
	}
	if info.Error != "" {
		return "", "", fmt.Errorf("go mod download %s@%s: %s", module, version, info.Error)
	}
	if want != "" && want != info.Sum {
		return "", "", fmt.Errorf("%s %s in the module cache has checksum %s, go.sum has %s: refused", module, version, info.Sum, want)
	}
	return info.Dir, info.Sum, nil
}

// ownFile is a file of ours that joins an upstream package.
type ownFile struct {
	Path string // in the patched tree
	From string // where it lies in this repository
	lang string // language version to raise it to, "" for none
}

// read returns the file as a tree gets it.
func (f ownFile) read() ([]byte, error) {
	data, err := os.ReadFile(f.From)
	if err != nil || f.lang == "" || !strings.HasSuffix(f.Path, ".go") {
		return data, err
	}
	return raise(f.Path, data, f.lang)
}

// ownFiles lists what the overlay directories hold, tracked or not, without
// what git ignores. The order is by path.
func (r *repo) ownFiles() ([]ownFile, error) {
	list, err := r.git().Lines(append([]string{"ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"}, overlay...)...)
	if err != nil {
		return nil, err
	}
	slices.Sort(list)
	var out []ownFile
	for _, p := range slices.Compact(list) {
		from := r.path(filepath.FromSlash(p))
		if _, err := os.Lstat(from); errors.Is(err, fs.ErrNotExist) {
			continue // deleted, not committed yet
		}
		out = append(out, ownFile{Path: p, From: from})
	}
	return out, nil
}

// set is the complete patch set for one base.
type set struct {
	Base    string
	Patches []*diff.Patch
	Own     []ownFile
	raised  bool // own files are copies raised to a newer language
}

// raise makes the own files fit a tree's language version.
func (s *set) raise(lang string) {
	s.raised = lang != ""
	for i := range s.Own {
		s.Own[i].lang = lang
	}
}

// series reads an order file; a missing one is an empty order.
func (r *repo) series(dirs []string) ([]string, error) {
	for _, dir := range dirs {
		data, err := os.ReadFile(filepath.Join(dir, "series"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var out []string
		for line := range strings.SplitSeq(string(data), "\n") {
			name := seriesName(line)
			if name == "" {
				continue
			}
			if slices.Contains(out, name) {
				return nil, fmt.Errorf("%s names %s twice", filepath.Join(dir, "series"), name)
			}
			out = append(out, name)
		}
		return out, nil
	}
	return nil, nil
}

// seriesName is the patch that a line of an order file names, "" for none.
func seriesName(line string) string {
	line, _, _ = strings.Cut(line, "#")
	return strings.TrimSuffix(strings.TrimSpace(line), ".patch")
}

// load reads the patch set of a base.
func (r *repo) load(base string) (*set, error) {
	dirs, err := r.baseDirs(base)
	if err != nil {
		return nil, err
	}
	names, err := r.series(dirs)
	if err != nil {
		return nil, err
	}
	desc, err := r.describe(base)
	if err != nil {
		return nil, err
	}
	s := &set{Base: base}
	for _, name := range slices.Concat(names, desc.also) {
		p, err := loadPatch(dirs, name)
		if err != nil {
			return nil, err
		}
		s.Patches = append(s.Patches, p)
	}
	own, err := r.ownFiles()
	if err != nil {
		return nil, err
	}
	byPath := make(map[string]ownFile)
	for _, f := range own {
		byPath[f.Path] = f
	}
	for i := len(dirs) - 1; i >= 0; i-- {
		if base := filepath.Base(dirs[i]); dirs[i] != r.path("patches") {
			d, err := r.describe(base)
			if err != nil {
				return nil, err
			}
			for _, p := range d.omit {
				if _, ok := byPath[p]; !ok {
					return nil, fmt.Errorf("base %s omits %s, which is no own file", base, p)
				}
				delete(byPath, p)
			}
		}
		variants := filepath.Join(dirs[i], "files")
		err := filepath.WalkDir(variants, func(name string, e fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) || (err == nil && e.IsDir()) {
				return nil
			}
			if err != nil {
				return err
			}
			rel, err := filepath.Rel(variants, name)
			if err != nil {
				return err
			}
			p := filepath.ToSlash(rel)
			byPath[p] = ownFile{Path: p, From: name}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	for _, f := range byPath {
		s.Own = append(s.Own, f)
	}
	slices.SortFunc(s.Own, func(a, b ownFile) int { return strings.Compare(a.Path, b.Path) })
	for _, name := range desc.without {
		at := slices.IndexFunc(s.Patches, func(p *diff.Patch) bool { return p.Name == name })
		if at < 0 {
			return nil, fmt.Errorf("base %s goes without %s, which is no patch", base, name)
		}
		s.Own = slices.DeleteFunc(s.Own, func(f ownFile) bool { return s.owner(f.Path) == at })
		s.Patches = slices.Delete(s.Patches, at, at+1)
	}
	return s, nil
}

// loadPatch reads a patch as a base has it: the whole one, with the variants of
// the base and of those it is like laid over it.
func loadPatch(dirs []string, name string) (*diff.Patch, error) {
	var p *diff.Patch
	for i := len(dirs) - 1; i >= 0; i-- {
		data, err := os.ReadFile(filepath.Join(dirs[i], name+".patch"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if p == nil {
			if p, err = diff.Parse(name, data); err != nil {
				return nil, err
			}
			continue
		}
		v, err := diff.ParseVariant(filepath.Base(dirs[i])+"/"+name, data)
		if err != nil {
			return nil, err
		}
		p = p.Merge(v)
	}
	if p == nil {
		return nil, fmt.Errorf("series names %s, but there is no %s.patch in %s", name, name, strings.Join(dirs, " or "))
	}
	return p, nil
}

// owner returns the index of the patch that brings an own file: the first one
// that lists it in its Files: field, else the first that touches the file's
// directory, else the first.
func (s *set) owner(file string) int {
	for i, p := range s.Patches {
		for pattern := range strings.FieldsSeq(p.Field(diff.FieldFiles)) {
			if ok, _ := path.Match(pattern, file); ok {
				return i
			}
		}
	}
	for i, p := range s.Patches {
		for _, f := range p.Files {
			if path.Dir(f.Path) == path.Dir(file) {
				return i
			}
		}
	}
	return 0
}
