// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"rpcguard/scripts/patchset/internal/diff"
)

// bases lists the bases in the order in which they are tried.
func (r *repo) bases() ([]string, error) {
	out := []string{mainBase}
	entries, err := os.ReadDir(r.path("patches", "bases"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// baseDirs lists the directories that make up a base, the one that overrides
// the others first.
func (r *repo) baseDirs(base string) ([]string, error) {
	if base == mainBase {
		return []string{r.path("patches")}, nil
	}
	dir := r.path("patches", "bases", base)
	if _, err := os.Stat(dir); err != nil {
		all, _ := r.bases()
		return nil, fmt.Errorf("no base %q; there are: %s", base, strings.Join(all, ", "))
	}
	desc, err := r.describe(base)
	if err != nil {
		return nil, err
	}
	rest, err := r.baseDirs(desc.like)
	if err != nil {
		return nil, err
	}
	return append([]string{dir}, rest...), nil
}

// description is the file "base" in the directory of a base: one statement a
// line, # begins a comment.
//
//	like NAME        what is not found here is taken from base NAME (default: geth)
//	has PATH TEXT    a tree belongs to this base only if the file holds the text
//	lacks PATH TEXT  ... only if it does not; a missing file lacks everything
//	omit PATH        an own file that this base goes without
//	also NAME        one more patch, behind those of the series
//	without NAME     a patch that this base goes without, with its own files
//	optional PATH OWN DECL
//	                 where the file has no such declaration, its hunks and the
//	                 own file OWN are left out
//
// The hooks decide whether a base fits: it has to apply strictly. The probes are
// for what hooks do not see, such as a type that an own file depends on.
type description struct {
	like    string
	probes  []probe
	omit    []string
	also    []string
	without []string

	optional []optional
}

type optional struct{ path, own, decl string }

type probe struct {
	has        bool
	path, text string
}

func (r *repo) describe(base string) (*description, error) {
	d := &description{like: mainBase}
	name := r.path("patches", "bases", base, "base")
	if base == mainBase {
		name = r.path("patches", "base")
	}
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	if err != nil {
		return nil, err
	}
	for i, line := range strings.Split(string(data), "\n") {
		line = strings.TrimSpace(line)
		word, rest, _ := strings.Cut(line, " ")
		rest = strings.TrimSpace(rest)
		p, text, _ := strings.Cut(rest, " ")
		switch {
		case line == "" || word[0] == '#':
		case word == "like" && rest != "" && rest != base && base != mainBase:
			d.like = rest
		case (word == "has" || word == "lacks") && text != "":
			d.probes = append(d.probes, probe{word == "has", p, strings.TrimSpace(text)})
		case word == "omit" && rest != "":
			d.omit = append(d.omit, rest)
		case word == "also" && rest != "" && base != mainBase:
			d.also = append(d.also, rest)
		case word == "without" && rest != "" && base != mainBase:
			d.without = append(d.without, rest)
		case word == "optional" && strings.Contains(text, " "):
			own, decl, _ := strings.Cut(text, " ")
			d.optional = append(d.optional, optional{p, own, strings.TrimSpace(decl)})
		default:
			return nil, fmt.Errorf("%s, line %d: %q is not understood", name, i+1, line)
		}
	}
	if base != mainBase && d.like != mainBase {
		below, err := r.describe(d.like)
		if err != nil {
			return nil, err
		}
		d.optional = append(d.optional, below.optional...)
		d.also = append(slices.Clone(below.also), d.also...)
		d.without = append(d.without, below.without...)
	}
	return d, nil
}

// leaveOut takes the optional parts out of a set that a tree has no use for. In a
// tree that carries the patches already (reverse) the own file tells.
func (s *set) leaveOut(list []optional, read reader, reverse bool) error {
	for _, o := range list {
		name := o.path
		if reverse {
			name = o.own
		}
		data, err := read(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		there := err == nil
		if !reverse {
			there = slices.Contains(diff.Decls(o.path, diff.Split(string(data))), o.decl)
		}
		if there {
			continue
		}
		for i, p := range s.Patches {
			s.Patches[i] = p.Without(o.path, o.decl)
		}
		s.Own = slices.DeleteFunc(s.Own, func(f ownFile) bool { return f.Path == o.own })
	}
	return nil
}

// failedProbe returns the first probe of a base that a tree does not meet, ""
// if it meets all.
func (d *description) failedProbe(read func(string) ([]byte, error)) (string, error) {
	for _, p := range d.probes {
		data, err := read(p.path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if found := bytes.Contains(data, []byte(p.text)); found != p.has {
			if p.has {
				return fmt.Sprintf("%s does not contain %q", p.path, p.text), nil
			}
			return fmt.Sprintf("%s contains %q", p.path, p.text), nil
		}
	}
	return "", nil
}
