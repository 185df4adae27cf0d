// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"rpcguard/scripts/patchset/internal/diff"
	"rpcguard/scripts/patchset/internal/git"
)

// fate is what became of a hunk, or of something else that a release has to have:
// then hunk is nil, and why says what is wrong.
type fate struct {
	patch string
	path  string
	decl  string
	hunk  *diff.Hunk
	state string // "clean", "moved", "conflict", "gone"; "fails" and "taken" without a hunk
	was   int    // line on the old release with the patches before it, from 1
	now   int    // the same on the new one
	miss  *diff.Miss
	why   string
	text  []string // what stands around the hunk on the old release, from line first on
	first int
}

// compare places every hunk of a set on two releases. What it returns besides are
// the patches without the hunks that have no place on the second one.
func compare(s *set, from, to reader) (fates []*fate, partial []*diff.Patch, err error) {
	texts := func(read reader, cache map[string]string, path string) (string, bool, error) {
		if t, ok := cache[path]; ok {
			return t, true, nil
		}
		data, err := read(path)
		if errors.Is(err, fs.ErrNotExist) {
			return "", false, nil
		}
		cache[path] = string(data)
		return string(data), err == nil, err
	}
	before, after := make(map[string]string), make(map[string]string)
	for _, p := range s.Patches {
		rest := &diff.Patch{Name: p.Name, Head: p.Head}
		for _, f := range p.Files {
			was, ok, err := texts(from, before, f.Path)
			if err != nil {
				return nil, nil, err
			}
			if !ok {
				return nil, nil, fmt.Errorf("patch %s: %s is not in the release to lift from", p.Name, f.Path)
			}
			now, there, err := texts(to, after, f.Path)
			if err != nil {
				return nil, nil, err
			}
			placed := &diff.File{Path: f.Path}
			var of []*fate // of the hunks placed
			lines := diff.Split(was)
			for _, h := range f.Hunks {
				o, at, miss := f.Find(h, lines)
				if miss != nil {
					return nil, nil, fmt.Errorf("patch %s does not fit the release to lift from: %w", p.Name, miss)
				}
				ft := &fate{patch: p.Name, path: f.Path, decl: h.Decl, hunk: h, state: "clean", was: at + 1}
				ft.first = max(1, ft.was-2)
				ft.text = lines[ft.first-1 : min(len(lines), at+len(o.Old())+2)]
				fates = append(fates, ft)
				if !there {
					ft.state, ft.miss = "gone", &diff.Miss{Path: f.Path, Hunk: h, Why: "there is no such file"}
					continue
				}
				c, at, miss := f.Find(h, diff.Split(now))
				switch {
				case miss == nil:
					if ft.now = at + 1; ft.now != ft.was {
						ft.state = "moved"
					}
					placed.Hunks, of = append(placed.Hunks, c), append(of, ft)
				case miss.Gone():
					ft.state, ft.miss = "gone", miss
				default:
					ft.state, ft.miss = "conflict", miss
				}
			}
			text, misses := f.Choose(was, false).Apply(was, false)
			if misses != nil {
				return nil, nil, misses[0]
			}
			before[f.Path] = text
			// Each has a place by itself; hunks that became neighbours stand in each
			// other's way, and the lower one is to be made by hand.
			for len(placed.Hunks) > 0 {
				text, misses = placed.Apply(now, false)
				if misses == nil {
					after[f.Path] = text
					rest.Files = append(rest.Files, placed)
					break
				}
				for _, m := range misses {
					i := slices.Index(placed.Hunks, m.Hunk)
					if i < 0 {
						return nil, nil, m
					}
					of[i].state, of[i].miss, of[i].now = "conflict", m, 0
					placed.Hunks, of = slices.Delete(placed.Hunks, i, i+1), slices.Delete(of, i, i+1)
				}
			}
		}
		partial = append(partial, rest)
	}
	return fates, partial, nil
}

// unfit tells what, apart from hunks, a release has to have for a set and has not:
// what the base is told apart by, and room for the own files. A hunk made by hand
// does not mend that.
func (r *repo) unfit(s *set, to reader) ([]*fate, error) {
	d, err := r.describe(s.Base)
	if err != nil {
		return nil, err
	}
	var out []*fate
	for _, p := range d.probes {
		why, err := (&description{probes: []probe{p}}).failedProbe(to)
		if err != nil {
			return nil, err
		}
		if why != "" {
			word := "lacks "
			if p.has {
				word = "has "
			}
			out = append(out, &fate{patch: "(base " + s.Base + ")", path: p.path, decl: word + p.text, state: "fails", why: why})
		}
	}
	for _, f := range s.Own {
		if _, err := to(f.Path); err == nil {
			out = append(out, &fate{patch: "(own file)", path: f.Path, state: "taken", why: f.Path + " is a file of upstream's there; ours needs another name"})
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return out, nil
}

// printFates tells what became of every hunk, with both texts where it has no
// place. history, unless "", is a git checkout of upstream.
func printFates(fates []*fate, from, to, history string, out io.Writer) error {
	count := make(map[string]int)
	hunks := 0
	t := newTable("patch", "file", "declaration", from, to, "")
	for _, f := range fates {
		count[f.state]++
		was, now := "-", "-"
		if f.hunk != nil {
			hunks++
			was = fmt.Sprint(f.was)
		}
		if f.now > 0 {
			now = fmt.Sprint(f.now)
		}
		t.row(f.patch, f.path, f.decl, was, now, f.state)
	}
	t.print(out)
	fmt.Fprintf(out, "%d hunks: %d clean, %d moved, %d conflicts, %d targets gone\n", hunks, count["clean"], count["moved"], count["conflict"], count["gone"])
	for _, f := range fates {
		if f.why != "" {
			fmt.Fprintf(out, "%s: %s\n", to, f.why)
		}
		if f.miss == nil {
			continue
		}
		fmt.Fprintf(out, "\n%s.patch: %v\n", f.patch, f.miss)
		fmt.Fprintf(out, "  in %s with the patches before it, from line %d:\n", from, f.first)
		for _, l := range f.text {
			fmt.Fprintf(out, "    |%s\n", strings.TrimRight(l, "\r\n"))
		}
		if history != "" {
			g := &git.Repo{Dir: history, Foreign: true}
			log, err := g.Run("log", "--no-merges", "--format=    %h %s", from+".."+to, "--", f.path)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "  upstream's commits to this file:\n%s\n", log)
		}
	}
	return nil
}
