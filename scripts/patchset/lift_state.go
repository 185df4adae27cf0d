// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"rpcguard/scripts/patchset/internal/diff"
)

// liftState is kept in build/lift while a lift waits for hands.
type liftState struct {
	From, To string
	Lost     []*lostHunk
	Series   string            // the order file as it was
	Partial  map[string]string // the patches as the lift wrote them, by name
}

type lostHunk struct {
	Patch, Path string
	Hunk        *diff.Hunk
	Dropped     bool
}

func (r *repo) liftDir(parts ...string) string {
	return r.path(append([]string{"build", "lift"}, parts...)...)
}

func lostHunks(lost []*fate) []*lostHunk {
	var out []*lostHunk
	for _, f := range lost {
		out = append(out, &lostHunk{Patch: f.patch, Path: f.path, Hunk: f.hunk})
	}
	return out
}

// place is how --drop names where a hunk was lost.
func (h *lostHunk) place() string {
	name := h.Patch + ":" + h.Path
	if h.Hunk.Decl != "" {
		name += ":" + h.Hunk.Decl
	}
	return name
}

// partialTexts are the patches without the hunks that were lost, as they are
// written; one that has none left and brings no own files is not.
func partialTexts(patches []*diff.Patch, lost int) map[string]string {
	if lost == 0 {
		return nil
	}
	out := make(map[string]string)
	for _, p := range patches {
		if len(p.Files) > 0 || p.Field(diff.FieldFiles) != "" {
			out[p.Name] = string(p.Format())
		}
	}
	return out
}

// writePartial writes the patches without the hunks that were lost. The header of a
// patch that is not written waits in build/lift.
func (r *repo) writePartial(s *liftState, patches []*diff.Patch) error {
	var order strings.Builder
	for _, p := range patches {
		name := r.path("patches", p.Name+".patch")
		text, ok := s.Partial[p.Name]
		if !ok {
			if err := os.WriteFile(r.liftDir(p.Name+".head"), []byte(p.Head), 0o644); err != nil {
				return err
			}
			if err := os.Remove(name); err != nil {
				return err
			}
			continue
		}
		order.WriteString(p.Name + "\n")
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(r.path("patches", "series"), []byte(order.String()), 0o644)
}

// drop marks what was lost in a file, or in one declaration of it, as not wanted.
func (s *liftState) drop(name string) error {
	found := false
	var places []string
	for _, h := range s.Lost {
		if h.place() == name || strings.HasPrefix(h.place(), name+":") && strings.Contains(name, ":") {
			h.Dropped, found = true, true
		}
		places = append(places, fmt.Sprintf("  --drop '%s'", h.place()))
	}
	if !found {
		return fmt.Errorf("--drop %q: no hunk was lost there; there are:\n%s", name, strings.Join(slices.Compact(places), "\n"))
	}
	return nil
}

// missing lists the places that are still without what they lost. Their changes are
// back if the patch makes as many more in the declaration as were lost there, or if
// it adds the same lines elsewhere in the file. What was lost in one declaration is
// no substitute for what was lost in another.
func (s *liftState) missing(now *set) ([]string, error) {
	var out []string
	for i, first := range s.Lost {
		same := func(h *lostHunk) bool { return h.place() == first.place() }
		if first.Dropped || slices.ContainsFunc(s.Lost[:i], same) {
			continue
		}
		var before, after []*diff.Hunk
		if text, ok := s.Partial[first.Patch]; ok {
			p, err := diff.ParseVariant(first.Patch, []byte(text))
			if err != nil {
				return nil, err
			}
			if f := p.File(first.Path); f != nil {
				before = f.Hunks
			}
		}
		for _, p := range now.Patches {
			if f := p.File(first.Path); p.Name == first.Patch && f != nil {
				after = f.Hunks
			}
		}
		lost, elsewhere := 0, true
		for _, h := range s.Lost {
			if !same(h) {
				continue
			}
			lost += changes([]*diff.Hunk{h.Hunk}, h.Hunk.Decl)
			equal := 0 // hunks lost in this file that add these very lines
			for _, o := range s.Lost {
				if o.Patch == h.Patch && o.Path == h.Path && !o.Dropped && added(o.Hunk) == added(h.Hunk) {
					equal++
				}
			}
			text := added(h.Hunk)
			if text == "" || adding(after, text)-adding(before, text) < equal {
				elsewhere = false
			}
		}
		back := changes(after, first.Hunk.Decl) - changes(before, first.Hunk.Decl)
		if back < lost && !elsewhere {
			out = append(out, fmt.Sprintf("  %s.patch: %s %s: %d of %d changes are back (patchset lift --continue --drop '%s')",
				first.Patch, first.Path, first.Hunk.Decl, max(0, back), lost, first.place()))
		}
	}
	return out, nil
}

// changes counts the runs of changed lines in the hunks of a declaration: however
// hunks are cut, these are the same.
func changes(hunks []*diff.Hunk, decl string) int {
	n := 0
	for _, h := range hunks {
		last := byte(' ')
		for _, l := range h.Lines {
			if h.Decl == decl && l.Op != ' ' && last == ' ' {
				n++
			}
			last = l.Op
		}
	}
	return n
}

// added is what a hunk adds.
func added(h *diff.Hunk) string {
	var b strings.Builder
	for _, l := range h.Lines {
		if l.Op == '+' {
			b.WriteString(l.Text)
		}
	}
	return b.String()
}

func adding(hunks []*diff.Hunk, text string) int {
	n := 0
	for _, h := range hunks {
		n += strings.Count("\n"+added(h), "\n"+text)
	}
	return n
}

// restoredOrder is the order as it was before the lift. Patches that came during it
// stay, behind; one of which nothing is left goes.
func (r *repo) restoredOrder(s *liftState, out io.Writer) (string, error) {
	now, err := r.series([]string{r.path("patches")})
	if err != nil {
		return "", err
	}
	var (
		order strings.Builder
		had   []string
	)
	for line := range strings.Lines(s.Series) {
		name := seriesName(line)
		if _, err := os.Stat(r.path("patches", name+".patch")); err != nil && name != "" {
			fmt.Fprintf(out, "patches/%s.patch: nothing is left of it; it is no longer in patches/series\n", name)
			continue
		}
		had = append(had, name)
		order.WriteString(line)
	}
	for _, name := range now {
		if !slices.Contains(had, name) {
			order.WriteString(name + "\n")
		}
	}
	return order.String(), nil
}

// liftUnderWay reads the state of the lift that waits.
func (r *repo) liftUnderWay() (*liftState, error) {
	data, err := os.ReadFile(r.liftDir("state"))
	if err != nil {
		return nil, errors.New("no lift is under way")
	}
	s := new(liftState)
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("%s: %w; `git checkout go.mod go.sum patches` puts back what it kept, then remove build/lift", r.liftDir("state"), err)
	}
	return s, nil
}

func (r *repo) writeState(s *liftState) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	tmp := r.liftDir("state.new")
	if err := os.WriteFile(tmp, data, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, r.liftDir("state"))
}

// saveLift keeps what an abort has to put back.
func (r *repo) saveLift(s *liftState) error {
	if err := os.RemoveAll(r.liftDir()); err != nil {
		return err
	}
	if err := os.MkdirAll(r.liftDir("saved"), 0o755); err != nil {
		return err
	}
	series, err := os.ReadFile(r.path("patches", "series"))
	if err != nil {
		return err
	}
	s.Series = string(series)
	names, err := r.patchNames()
	if err != nil {
		return err
	}
	for _, name := range append(names, "go.mod", "go.sum", "patches/series") {
		data, err := os.ReadFile(r.path(filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		if err := os.WriteFile(r.liftDir("saved", strings.ReplaceAll(name, "/", "+")), data, 0o644); err != nil {
			return err
		}
	}
	return r.writeState(s)
}

// patchNames lists the patches of the main base, in the series or not.
func (r *repo) patchNames() ([]string, error) {
	list, err := filepath.Glob(r.path("patches", "*.patch"))
	for i, name := range list {
		list[i] = "patches/" + filepath.Base(name)
	}
	return list, err
}

// abortLift puts go.mod, go.sum, patches/ and build/fork back. What was made by hand
// meanwhile is kept, and told where.
func (r *repo) abortLift(out io.Writer) error {
	s, err := r.liftUnderWay()
	if err != nil {
		return err
	}
	l, err := r.openLaid("")
	if err != nil {
		return err
	}
	if laid := l.ref(refHead); laid != "" {
		id, err := l.keepEdits(refKept, laid)
		if err != nil {
			return err
		}
		if id != "" {
			fmt.Fprintf(out, "the edits in %s that no patch had are kept: git -C %s show %.12s\n", l.rel(), l.rel(), id)
			if _, err := l.git.Run("reset", "-q", "--hard", laid); err != nil {
				return err
			}
		}
	}
	if err := r.keepHandMade(s, out); err != nil {
		return err
	}
	names, err := r.patchNames()
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, err := os.Stat(r.liftDir("saved", strings.ReplaceAll(name, "/", "+"))); err != nil {
			if err := os.Remove(r.path(filepath.FromSlash(name))); err != nil {
				return err
			}
		}
	}
	entries, err := os.ReadDir(r.liftDir("saved"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		data, err := os.ReadFile(r.liftDir("saved", e.Name()))
		if err != nil {
			return err
		}
		if err := os.WriteFile(r.path(filepath.FromSlash(strings.ReplaceAll(e.Name(), "+", "/"))), data, 0o644); err != nil {
			return err
		}
	}
	fmt.Fprintln(out, "go.mod, go.sum and patches/ are as before the lift")
	if err := os.RemoveAll(r.liftDir()); err != nil {
		return err
	}
	if l.ref(refHead) == "" {
		return nil
	}
	if l, err = r.openLaid(""); err == nil {
		err = l.lay(mainBase, false, out)
	}
	if err != nil {
		return fmt.Errorf("%s is not as before the lift: %w\nmend this and run `patchset fork`", l.rel(), err)
	}
	return nil
}

// lineNumbers are those of a hunk's header, which a lift moves by itself.
var lineNumbers = regexp.MustCompile(`(?m)^@@ -[0-9,]+ \+[0-9,]+ @@`)

// keepHandMade copies the patches that are neither as before the lift nor as the
// lift wrote them.
func (r *repo) keepHandMade(s *liftState, out io.Writer) error {
	names, err := r.patchNames()
	if err != nil {
		return err
	}
	dir := ""
	for _, name := range names {
		data, err := os.ReadFile(r.path(filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		saved, _ := os.ReadFile(r.liftDir("saved", strings.ReplaceAll(name, "/", "+")))
		plain := func(text string) string { return lineNumbers.ReplaceAllString(text, "@@") }
		if now := plain(string(data)); now == plain(string(saved)) || now == plain(s.Partial[strings.TrimSuffix(filepath.Base(name), ".patch")]) {
			continue
		}
		if dir == "" {
			if dir, err = os.MkdirTemp(r.path("build"), "lift-"+s.To+"-"); err != nil {
				return err
			}
			rel, err := filepath.Rel(r.root, dir)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "the patches as they were made for %s are kept in %s\n", s.To, filepath.ToSlash(rel))
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}
