// SPDX-License-Identifier: LGPL-3.0-or-later

package diff

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Miss says why a hunk has no place in a file.
type Miss struct {
	Path    string
	Hunk    *Hunk
	Why     string
	Near    int      // line number (from 1) of the nearest text, 0 if there is none
	Text    []string // what stands there
	Applied bool     // the hunk's new lines stand in its place already
	gone    bool     // the declaration it names is not in the file
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
	var (
		places = make([]int, len(f.Hunks))
		decls  = Decls(f.Path, lines)
		misses []*Miss
	)
	for i, h := range f.Hunks {
		all, inside := f.candidates(h, lines, decls)
		if len(inside) != 1 {
			misses = append(misses, f.miss(h, lines, decls, all, inside))
			continue
		}
		places[i] = inside[0]
	}
	if len(misses) > 0 {
		return nil, misses
	}
	// The order in the patch is that of another tree, or of another base: only
	// an overlap is a fault.
	order := inOrder(places)
	for i := 1; i < len(order); i++ {
		h, above := f.Hunks[order[i]], f.Hunks[order[i-1]]
		if at := places[order[i]]; at < places[order[i-1]]+len(above.Old()) {
			misses = append(misses, &Miss{Path: f.Path, Hunk: h, Why: "its lines overlap those of hunk " + above.Header(), Near: at + 1})
		}
	}
	return places, misses
}

// inOrder returns the indices of places from top to bottom.
func inOrder(places []int) []int {
	order := make([]int, len(places))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return places[a] - places[b] })
	return order
}

// PlaceReverse finds where the hunks' new lines stand, for taking them out.
//
// The declaration that a hunk names is that of the old text, and one hunk taken
// out alone may leave braces that do not match. So the hunks are judged
// together: wanted are the places that Place finds again once all hunks are out,
// and there must be exactly one such choice.
func (f *File) PlaceReverse(lines []string) ([]int, []*Miss) {
	var (
		choices = make([][]int, len(f.Hunks))
		misses  []*Miss
	)
	for i, h := range f.Hunks {
		choices[i] = matches(h, h.New(), lines)
		if len(choices[i]) == 0 {
			m := &Miss{Path: f.Path, Hunk: h, Why: "its new lines are not in the file", Near: nearest(h.New(), lines, nil, "")}
			m.quote(h.New(), lines)
			misses = append(misses, m)
		}
	}
	if len(misses) > 0 {
		return nil, misses
	}
	var (
		found [][]int
		tries = 0
		try   func(i int, chosen []int)
	)
	try = func(i int, chosen []int) {
		if tries > maxTries || len(found) > 1 {
			return
		}
		if i == len(f.Hunks) {
			tries++
			order := inOrder(chosen)
			for j := 1; j < len(order); j++ {
				if chosen[order[j]] < chosen[order[j-1]]+len(f.Hunks[order[j-1]].New()) {
					return
				}
			}
			out := Replace(f, lines, chosen, true, func(s string) string { return s })
			again, misses := f.Place(out)
			shift := 0
			for _, j := range order {
				h := f.Hunks[j]
				if misses != nil || again[j] != chosen[j]+shift {
					return
				}
				shift += len(h.Old()) - len(h.New())
			}
			found = append(found, append([]int(nil), chosen...))
			return
		}
		for _, at := range choices[i] {
			try(i+1, append(chosen, at))
		}
	}
	try(0, nil)
	if len(found) == 1 && tries <= maxTries {
		return found[0], nil
	}
	why := "no choice of places gives a file to which it would apply"
	if len(found) > 1 || tries > maxTries {
		why = "its new lines stand in several places; strict means exactly one"
	}
	for _, h := range f.Hunks {
		misses = append(misses, &Miss{Path: f.Path, Hunk: h, Why: why})
	}
	return nil, misses
}

// maxTries bounds the choices of places that are looked at for one file.
const maxTries = 1000

// miss says why a hunk has no place, or more than one.
func (f *File) miss(h *Hunk, lines, decls []string, all, inside []int) *Miss {
	want := h.Old()
	m := &Miss{Path: f.Path, Hunk: h}
	switch {
	case len(inside) > 1:
		m.Why = fmt.Sprintf("its lines stand in %d places of %s (lines %s); strict means exactly one", len(inside), f.scope(h), numbers(inside))
		m.Near = inside[0] + 1
	case len(all) > 0:
		other := declAt(h, decls, all[0])
		if other == "" {
			other = "no declaration"
		}
		m.Why = fmt.Sprintf("its lines stand in %s (line %d), not in %s where they belong", other, all[0]+1, h.Decl)
		m.Near = all[0] + 1
	case h.Decl != "" && !slices.Contains(decls, h.Decl):
		m.Why = "there is no " + h.Decl + " in this file"
		m.gone = true
		m.Near = nearest(want, lines, nil, "")
	case len(lines) > 0 && strings.HasSuffix(lines[0], "\r\n"):
		m.Why = "the file has CRLF line ends; check it out with core.autocrlf=false"
	default:
		m.Why = "its lines are not in " + f.scope(h)
		m.Near = nearest(want, lines, decls, h.Decl)
	}
	m.quote(want, lines)
	m.Applied = len(matches(h, h.New(), lines)) == 1
	return m
}

// quote fills in the text at Near.
func (m *Miss) quote(want, lines []string) {
	if m.Near > 0 {
		m.Text = lines[m.Near-1 : min(len(lines), m.Near-1+len(want))]
	}
}

func (f *File) scope(h *Hunk) string {
	if h.Decl != "" {
		return h.Decl
	}
	return "the file"
}

// matches returns every index at which one side of a hunk stands. Without a
// context line above or below, it stands at an end of the file, as git has it.
func matches(h *Hunk, side, lines []string) []int {
	var out []int
	for at := 0; at+len(side) <= len(lines); at++ {
		switch {
		case !slices.Equal(lines[at:at+len(side)], side):
		case h.Lines[0].Op != ' ' && at != 0:
		case h.Lines[len(h.Lines)-1].Op != ' ' && at+len(side) != len(lines):
		default:
			out = append(out, at)
		}
	}
	return out
}

// candidates returns every index at which the old lines of h stand, and those
// of them that lie in the declaration it names.
func (f *File) candidates(h *Hunk, lines, decls []string) (all, inside []int) {
	all = matches(h, h.Old(), lines)
	if h.Decl == "" {
		return all, all
	}
	for _, at := range all {
		if declAt(h, decls, at) == h.Decl {
			inside = append(inside, at)
		}
	}
	return all, inside
}

// declAt names the declaration that h changes when its old lines begin at index
// at: that of the first line it removes, or, where it only inserts, the one
// that both neighbours of the gap belong to.
func declAt(h *Hunk, decls []string, at int) string {
	line, gap := at, -1
	for _, l := range h.Lines {
		switch l.Op {
		case '-':
			if line < len(decls) {
				return decls[line]
			}
			return ""
		case '+':
			if gap < 0 {
				gap = line
			}
		default:
			line++
		}
	}
	if gap <= 0 || gap >= len(decls) || decls[gap-1] != decls[gap] {
		return ""
	}
	return decls[gap]
}

// nearest returns the line number of the text most like want, by the words that
// its lines share, inside the declaration if that is named.
func nearest(want, lines, decls []string, decl string) int {
	words := func(s string) []string {
		return strings.FieldsFunc(s, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	}
	var (
		wanted = make([][]string, len(want))
		have   = make([][]string, len(lines))
		best   = 0.0
		at     = 0
	)
	for i, w := range want {
		wanted[i] = words(w)
	}
	for i, l := range lines {
		have[i] = words(l)
	}
	for i := range lines {
		if decl != "" && decls[i] != decl {
			continue
		}
		score := 0.0
		for j := range want {
			if i+j >= len(lines) || len(wanted[j])+len(have[i+j]) == 0 {
				continue
			}
			common := 0
			for _, w := range wanted[j] {
				if slices.Contains(have[i+j], w) {
					common++
				}
			}
			score += float64(common) * 2 * float64(common) / float64(len(wanted[j])+len(have[i+j]))
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
	for _, i := range inOrder(places) {
		h := f.Hunks[i]
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

// Apply returns the file's text with all hunks in (or out), or what has no
// place.
func (f *File) Apply(text string, reverse bool) (string, []*Miss) {
	var (
		lines = Split(text)
		place = f.Place
	)
	if reverse {
		place = f.PlaceReverse
	}
	places, misses := place(lines)
	if len(misses) > 0 {
		return "", misses
	}
	return Join(Replace(f, lines, places, reverse, func(s string) string { return s })), nil
}
