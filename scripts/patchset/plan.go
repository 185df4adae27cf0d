// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"rpcguard/scripts/patchset/internal/diff"
	"rpcguard/scripts/patchset/internal/tree"
)

// reader reads a file of a tree; fs.ErrNotExist where there is none.
type reader func(path string) ([]byte, error)

// plan is the outcome of a whole set on a tree, worked out in memory before a
// byte is written.
type plan struct {
	set    *set
	before map[string]string   // upstream files touched, as found
	after  map[string]string   // the same with all patches in (or out)
	steps  []map[string]string // what each patch leaves of the files it touches, in order of application
}

// misfit says why a set does not fit a tree.
type misfit struct {
	base   string
	probe  string // the probe that failed, if one did
	misses []patchMiss
	fits   int // hunks that have a place
}

type patchMiss struct {
	patch string
	miss  *diff.Miss
}

func (m *misfit) Error() string {
	var b strings.Builder
	if m.probe != "" {
		fmt.Fprintf(&b, "base %s: %s", m.base, m.probe)
		return b.String()
	}
	fmt.Fprintf(&b, "base %s: %d of %d hunks have no place", m.base, len(m.misses), len(m.misses)+m.fits)
	for _, pm := range m.misses {
		fmt.Fprintf(&b, "\n%s.patch: %v", pm.patch, pm.miss)
		if pm.miss.Applied {
			b.WriteString("\n  (its new lines stand there already)")
		}
	}
	return b.String()
}

// planSet works out what the set makes of a tree. With reverse it takes the set
// out, last patch first. A *misfit says that it does not fit; what else stands
// in the error is a failure to read.
func planSet(s *set, read reader, reverse bool) (*plan, error) {
	p := &plan{set: s, before: make(map[string]string), after: make(map[string]string)}
	bad := &misfit{base: s.Base}
	order := slices.Clone(s.Patches)
	if reverse {
		slices.Reverse(order)
	}
	for _, patch := range order {
		step := make(map[string]string)
		for _, f := range patch.Files {
			if _, ok := p.before[f.Path]; !ok {
				data, err := read(f.Path)
				if errors.Is(err, fs.ErrNotExist) {
					for _, h := range f.Hunks {
						bad.misses = append(bad.misses, patchMiss{patch.Name, &diff.Miss{Path: f.Path, Hunk: h, Why: "there is no such file"}})
					}
					continue
				}
				if err != nil {
					return nil, err
				}
				if strings.Contains(string(data), "\r\n") {
					return nil, fmt.Errorf("%s has CRLF line ends, and the patches have LF: nothing was changed; check the tree out with core.autocrlf=false", f.Path)
				}
				p.before[f.Path] = string(data)
				p.after[f.Path] = string(data)
			}
			text, misses := f.Choose(p.after[f.Path], reverse).Apply(p.after[f.Path], reverse)
			for _, m := range misses {
				bad.misses = append(bad.misses, patchMiss{patch.Name, m})
			}
			bad.fits += len(f.Hunks) - len(misses)
			if len(misses) > 0 {
				continue
			}
			p.after[f.Path] = text
			step[f.Path] = text
		}
		p.steps = append(p.steps, step)
	}
	if len(bad.misses) > 0 {
		return nil, bad
	}
	return p, nil
}

// planFor is choose for a release that lies unchanged in dir.
func (r *repo) planFor(dir, only string) (*plan, error) {
	release, err := tree.Open(dir, "")
	if err != nil {
		return nil, err
	}
	return r.choose(release.Read, only, false)
}

// choose tries bases in order and returns the first plan that fits; only, when
// not "", is the one base to try.
func (r *repo) choose(read reader, only string, reverse bool) (*plan, error) {
	names := []string{only}
	if only == "" {
		var err error
		if names, err = r.bases(); err != nil {
			return nil, err
		}
	}
	lang, err := r.raiseFor(read)
	if err != nil {
		return nil, err
	}
	var tried []*misfit
	for _, name := range names {
		s, err := r.load(name)
		if err != nil {
			return nil, err
		}
		s.raise(lang)
		desc, err := r.describe(name)
		if err != nil {
			return nil, err
		}
		failed, err := desc.failedProbe(read)
		if err != nil {
			return nil, err
		}
		if failed != "" {
			tried = append(tried, &misfit{base: name, probe: failed})
			continue
		}
		if err := s.leaveOut(desc.optional, read, reverse); err != nil {
			return nil, err
		}
		p, err := planSet(s, read, reverse)
		var bad *misfit
		switch {
		case err == nil:
			return p, nil
		case errors.As(err, &bad):
			tried = append(tried, bad)
		default:
			return nil, err
		}
	}
	return nil, &noBase{tried}
}

// noBase lists what every base that was tried failed on.
type noBase struct{ tried []*misfit }

func (e *noBase) Error() string {
	// The base that came nearest is told in full, the others in a line.
	near := e.tried[0]
	for _, m := range e.tried[1:] {
		if m.probe == "" && (near.probe != "" || len(m.misses) < len(near.misses)) {
			near = m
		}
	}
	var b strings.Builder
	b.WriteString("the patches do not fit this tree; nothing was changed. Bases tried:\n")
	for _, m := range e.tried {
		if m != near {
			line, _, _ := strings.Cut(m.Error(), "\n")
			fmt.Fprintf(&b, "%s\n", line)
		}
	}
	b.WriteString(near.Error())
	return b.String()
}
