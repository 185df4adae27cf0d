// SPDX-License-Identifier: LGPL-3.0-or-later

// Package diff reads, writes, places and makes the small patches of this
// repository: a few header lines and hunks with one line of context.
//
// It is stricter than patch(1) and git apply. A hunk names the declaration
// that it changes ("func (*handler) handleCall"), and it is placed only where
// its old lines stand exactly once inside that declaration; a line offset is
// allowed, fuzz is not. A hunk that names no declaration has to be unique in
// its whole file. So a hunk that moved is found, and one whose code went away
// is refused even where the same two lines occur in a neighbouring function.
//
// Example: the hunk "@@ -40,2 +40,3 @@ type registry" with the old lines
// "\tmu sync.Mutex" and "}" fits a file in which registry now begins at line
// 300; it does not fit one where only "type queue" ends in these two lines.
//
// Everything here works on memory; files and git are the business of others.
package diff

import "strings"

// Split cuts text into lines. Every line keeps its terminator, so a last line
// without one differs from the same line with one.
func Split(text string) []string {
	lines := strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// Join is the inverse of Split.
func Join(lines []string) string { return strings.Join(lines, "") }

// Edit is one step from an old text to a new one: old[From:To] becomes new[NewFrom:NewTo].
type Edit struct{ From, To, NewFrom, NewTo int }

// Edits returns the steps from one text to another, in order.
func Edits(from, to []string) []Edit {
	var out []Edit
	for _, e := range edits(from, to) {
		out = append(out, Edit{e.a1, e.a2, e.b1, e.b2})
	}
	return out
}

// edit is Edit under the names of the algorithm: a[a1:a2] becomes b[b1:b2].
type edit struct{ a1, a2, b1, b2 int }

// edits returns the shortest list of edits from a to b (Myers' greedy
// algorithm, so the cost grows with the size of the difference and not of the
// file). Where an edit could stand in several places it is moved down as far as
// it goes: the result depends on the two texts alone.
func edits(a, b []string) []edit {
	pre := 0
	for pre < len(a) && pre < len(b) && a[pre] == b[pre] {
		pre++
	}
	post := 0
	for post < len(a)-pre && post < len(b)-pre && a[len(a)-1-post] == b[len(b)-1-post] {
		post++
	}
	out := shortest(a[pre:len(a)-post], b[pre:len(b)-post])
	for i := range out {
		out[i].a1, out[i].a2 = out[i].a1+pre, out[i].a2+pre
		out[i].b1, out[i].b2 = out[i].b1+pre, out[i].b2+pre
	}
	return slideDown(a, b, out)
}

// shortest runs the greedy search and walks its trace back.
func shortest(a, b []string) []edit {
	n, m := len(a), len(b)
	if n == 0 && m == 0 {
		return nil
	}
	var (
		limit = n + m
		v     = make([]int, 2*limit+2)
		trace [][]int
	)
search:
	for d := 0; d <= limit; d++ {
		trace = append(trace, append([]int(nil), v[limit-d:limit+d+1]...))
		for k := -d; k <= d; k += 2 {
			x := 0
			if k == -d || (k != d && v[limit+k-1] < v[limit+k+1]) {
				x = v[limit+k+1]
			} else {
				x = v[limit+k-1] + 1
			}
			for x < n && x-k < m && a[x] == b[x-k] {
				x++
			}
			v[limit+k] = x
			if x >= n && x-k >= m {
				break search
			}
		}
	}
	var out []edit
	x, y := n, m
	for d := len(trace) - 1; d > 0; d-- {
		var (
			w    = trace[d] // the frontier before step d; w[i] is diagonal i-d
			k    = x - y
			down = k == -d || (k != d && w[k-1+d] < w[k+1+d])
			px   int
			e    edit
		)
		if down {
			px = w[k+1+d]
			py := px - (k + 1)
			e = edit{px, px, py, py + 1}
			x, y = px, py
		} else {
			px = w[k-1+d]
			py := px - (k - 1)
			e = edit{px, px + 1, py, py}
			x, y = px, py
		}
		if len(out) > 0 && out[len(out)-1].a1 == e.a2 && out[len(out)-1].b1 == e.b2 {
			out[len(out)-1].a1, out[len(out)-1].b1 = e.a1, e.b1
		} else {
			out = append(out, e)
		}
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}

// slideDown moves pure insertions and deletions down over equal lines, merging
// those that meet.
func slideDown(a, b []string, in []edit) []edit {
	var out []edit
	for i := len(in) - 1; i >= 0; i-- {
		e := in[i]
		endA, endB := len(a), len(b)
		if len(out) > 0 {
			endA, endB = out[len(out)-1].a1, out[len(out)-1].b1
		}
		switch {
		case e.a1 == e.a2:
			for e.b2 < endB && e.a2 < endA && b[e.b1] == b[e.b2] {
				e.a1, e.a2, e.b1, e.b2 = e.a1+1, e.a2+1, e.b1+1, e.b2+1
			}
		case e.b1 == e.b2:
			for e.b2 < endB && e.a2 < endA && a[e.a1] == a[e.a2] {
				e.a1, e.a2, e.b1, e.b2 = e.a1+1, e.a2+1, e.b1+1, e.b2+1
			}
		}
		if len(out) > 0 && e.a2 == endA && e.b2 == endB {
			out[len(out)-1].a1, out[len(out)-1].b1 = e.a1, e.b1
		} else {
			out = append(out, e)
		}
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}
