// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"rpcguard/scripts/patchset/internal/diff"
	"rpcguard/scripts/patchset/internal/git"
)

// fate is what became of a hunk.
type fate struct {
	patch string
	path  string
	hunk  *diff.Hunk
	state string // "clean", "moved", "conflict", "gone"
	was   int    // line on the old release, from 1
	now   int    // line on the new one
	miss  *diff.Miss
}

// compare places every hunk of a set on two releases.
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
			for _, h := range f.Hunks {
				_, at, miss := f.Find(h, diff.Split(was))
				if miss != nil {
					return nil, nil, fmt.Errorf("patch %s does not fit the release to lift from: %w", p.Name, miss)
				}
				ft := &fate{patch: p.Name, path: f.Path, hunk: h, state: "clean", was: at + 1}
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
					placed.Hunks = append(placed.Hunks, c)
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
			if len(placed.Hunks) == 0 {
				continue
			}
			if text, misses = placed.Apply(now, false); misses != nil {
				return nil, nil, misses[0]
			}
			after[f.Path] = text
			rest.Files = append(rest.Files, placed)
		}
		partial = append(partial, rest)
	}
	return fates, partial, nil
}

// printFates tells what became of every hunk, with both texts where it has no
// place. history, unless "", is a git checkout of upstream.
func printFates(fates []*fate, before reader, from, to, history string, out io.Writer) error {
	count := make(map[string]int)
	t := newTable("patch", "file", "declaration", from, to, "")
	for _, f := range fates {
		count[f.state]++
		now := "-"
		if f.now > 0 {
			now = fmt.Sprint(f.now)
		}
		t.row(f.patch, f.path, f.hunk.Decl, f.was, now, f.state)
	}
	t.print(out)
	fmt.Fprintf(out, "%d hunks: %d clean, %d moved, %d conflicts, %d targets gone\n", len(fates), count["clean"], count["moved"], count["conflict"], count["gone"])
	for _, f := range fates {
		if f.miss == nil {
			continue
		}
		fmt.Fprintf(out, "\n%s.patch: %v\n", f.patch, f.miss)
		if data, err := before(f.path); err == nil {
			lines := diff.Split(string(data))
			fmt.Fprintf(out, "  in %s, line %d:\n", from, f.was)
			for _, l := range lines[max(0, f.was-3):min(len(lines), f.was+len(f.hunk.Old())+2)] {
				fmt.Fprintf(out, "    |%s\n", strings.TrimRight(l, "\r\n"))
			}
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
