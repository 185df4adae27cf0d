// SPDX-License-Identifier: LGPL-3.0-or-later

package diff

import (
	"fmt"
	"slices"
	"strings"
)

// Miss says why a hunk has no place in a file.
type Miss struct {
	Path    string
	Hunk    *Hunk
	Why     string
	Near    int      // line number (from 1) of the nearest text, 0 if there is none
	Text    []string // what stands there
	Applied bool     // the hunk's new lines stand in its place already
}

func (m *Miss) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: hunk %s: %s", m.Path, m.Hunk.Header(), m.Why)
	for _, l := range m.Hunk.Lines {
		fmt.Fprintf(&b, "\n    %c%s", l.Op, strings.TrimRight(l.Text, "\r\n"))
	}
	if m.Near > 0 {
		fmt.Fprintf(&b, "\n  nearest text, line %d:", m.Near)
		for _, l := range m.Text {
			fmt.Fprintf(&b, "\n    |%s", strings.TrimRight(l, "\r\n"))
		}
	}
	return b.String()
}

// Place finds where the hunks belong in a file: for each the index of the line
// at which its old lines begin. All hunks are looked for, so that a report names
// every one that has no place.
func (f *File) Place(lines []string) ([]int, []*Miss) {
	return f.place(lines, false)
}

// PlaceReverse finds where the hunks' new lines stand, for taking them out.
func (f *File) PlaceReverse(lines []string) ([]int, []*Miss) {
	return f.place(lines, true)
}

func (f *File) place(lines []string, reverse bool) ([]int, []*Miss) {
	var (
		places = make([]int, len(f.Hunks))
		misses []*Miss
		end    = 0
	)
	for i, h := range f.Hunks {
		at, miss := f.locate(h, lines, reverse)
		if miss == nil && at < end {
			miss = &Miss{Path: f.Path, Hunk: h, Why: "its lines stand before those of the hunk above it", Near: at + 1}
		}
		if miss != nil {
			misses = append(misses, miss)
			continue
		}
		places[i] = at
		if end = at + len(h.Old()); reverse {
			end = at + len(h.New())
		}
	}
	return places, misses
}

// locate places one hunk.
func (f *File) locate(h *Hunk, lines []string, reverse bool) (int, *Miss) {
	all, inside := f.candidates(h, lines, reverse)
	if len(inside) == 1 {
		return inside[0], nil
	}
	want := h.Old()
	if reverse {
		want = h.New()
	}
	m := &Miss{Path: f.Path, Hunk: h}
	decls := Decls(f.Path, lines)
	switch {
	case len(inside) > 1:
		m.Why = fmt.Sprintf("its lines stand in %d places of %s (lines %s); strict means exactly one", len(inside), f.scope(h), numbers(inside))
		m.Near = inside[0] + 1
	case len(all) > 0:
		other := declAt(h, decls, all[0], reverse)
		if other == "" {
			other = "no declaration"
		}
		m.Why = fmt.Sprintf("its lines stand in %s (line %d), not in %s where they belong", other, all[0]+1, h.Decl)
		m.Near = all[0] + 1
	case !reverse && h.Decl != "" && !slices.Contains(decls, h.Decl):
		m.Why = "there is no " + h.Decl + " in this file"
		m.Near = nearest(want, lines, nil, "")
	case len(lines) > 0 && strings.HasSuffix(lines[0], "\r\n"):
		m.Why = "the file has CRLF line ends; check it out with core.autocrlf=false"
	default:
		m.Why = "its lines are not in " + f.scope(h)
		m.Near = nearest(want, lines, decls, h.Decl)
	}
	if m.Near > 0 {
		m.Text = lines[m.Near-1 : min(len(lines), m.Near-1+len(want))]
	}
	if !reverse {
		_, there := f.candidates(h, lines, true)
		m.Applied = len(there) == 1
	}
	return 0, m
}

func (f *File) scope(h *Hunk) string {
	if h.Decl != "" {
		return h.Decl
	}
	return "the file"
}

// candidates returns every line index at which the lines of h stand, and those
// of them that lie in the declaration it names.
func (f *File) candidates(h *Hunk, lines []string, reverse bool) (all, inside []int) {
	from, to := h.Old(), h.New()
	if reverse {
		from, to = to, from
	}
	for at := 0; at+len(from) <= len(lines); at++ {
		if !slices.Equal(lines[at:at+len(from)], from) {
			continue
		}
		// Without a context line above or below, the hunk stands at an end of
		// the file, as git has it.
		if h.Lines[0].Op != ' ' && at != 0 {
			continue
		}
		if h.Lines[len(h.Lines)-1].Op != ' ' && at+len(from) != len(lines) {
			continue
		}
		all = append(all, at)
	}
	if h.Decl == "" {
		return all, all
	}
	decls := Decls(f.Path, lines)
	for _, at := range all {
		if reverse {
			// A rename changes the declaration's own name: what counts is the
			// name once the hunk is out.
			decls = Decls(f.Path, slices.Concat(lines[:at], to, lines[at+len(from):]))
		}
		if declAt(h, decls, at, false) == h.Decl {
			inside = append(inside, at)
		}
	}
	return all, inside
}

// declAt names the declaration that h changes when its old lines begin at index
// at: that of the first line it removes, or, where it only inserts, the one
// that both neighbours of the gap belong to.
func declAt(h *Hunk, decls []string, at int, reverse bool) string {
	skip := byte('+')
	if reverse {
		skip = '-'
	}
	line := at
	for _, l := range h.Lines {
		switch {
		case l.Op == ' ':
			line++
		case l.Op != skip:
			if line < len(decls) {
				return decls[line]
			}
			return ""
		default:
			if removes(h, reverse) {
				continue
			}
			if line == 0 || line >= len(decls) || decls[line-1] != decls[line] {
				return ""
			}
			return decls[line]
		}
	}
	return ""
}

func removes(h *Hunk, reverse bool) bool {
	op := byte('-')
	if reverse {
		op = '+'
	}
	return slices.ContainsFunc(h.Lines, func(l Line) bool { return l.Op == op })
}

// nearest returns the line number of the text most like want, by equal lines;
// inside the declaration if that exists.
func nearest(want, lines, decls []string, decl string) int {
	best, at := 0, 0
	for i := range lines {
		if decl != "" && decls[i] != decl {
			continue
		}
		score := 0
		for j, w := range want {
			if i+j < len(lines) && lines[i+j] == w && strings.TrimSpace(w) != "" {
				score += 2
			} else if i+j < len(lines) && strings.TrimSpace(w) != "" && strings.Join(strings.Fields(lines[i+j]), " ") == strings.Join(strings.Fields(w), " ") {
				score++
			}
		}
		if score > best {
			best, at = score, i+1
		}
	}
	return at
}

func numbers(at []int) string {
	var s []string
	for _, n := range at {
		s = append(s, fmt.Sprint(n+1))
	}
	return strings.Join(s, ", ")
}

// Replace puts the hunks into lines at the places that Place returned. The
// lines may be of any type: context keeps its elements, fresh makes the added
// ones.
func Replace[T any](f *File, lines []T, places []int, reverse bool, fresh func(string) T) []T {
	drop, add := byte('-'), byte('+')
	if reverse {
		drop, add = add, drop
	}
	var (
		out []T
		pos int
	)
	for i, h := range f.Hunks {
		out = append(out, lines[pos:places[i]]...)
		pos = places[i]
		for _, l := range h.Lines {
			switch l.Op {
			case drop:
				pos++
			case add:
				out = append(out, fresh(l.Text))
			default:
				out = append(out, lines[pos])
				pos++
			}
		}
	}
	return append(out, lines[pos:]...)
}

// Apply returns the file's text with all hunks in, or what has no place.
func (f *File) Apply(text string, reverse bool) (string, []*Miss) {
	lines := Split(text)
	places, misses := f.place(lines, reverse)
	if len(misses) > 0 {
		return "", misses
	}
	return Join(Replace(f, lines, places, reverse, func(s string) string { return s })), nil
}
