// SPDX-License-Identifier: LGPL-3.0-or-later

package diff

// Context is the number of lines around a change. A hunk gets more only where
// one line leaves its place inside its declaration ambiguous.
const (
	Context    = 1
	maxContext = 8
)

// Make returns the section that turns one text into another, nil if they are
// equal. It depends on the two texts only, so it is the same on every machine.
func Make(path, from, to string) *File {
	var (
		a, b = Split(from), Split(to)
		es   = edits(a, b)
	)
	if len(es) == 0 {
		return nil
	}
	context := make([]int, len(es))
	for i := range context {
		context[i] = Context
	}
	decls := Decls(path, a)
	for {
		f := &File{Path: path}
		var (
			group []int // the edits of the hunk being built
			grown bool
		)
		flush := func() {
			h := build(a, b, es[group[0]:group[len(group)-1]+1], context[group[0]], context[group[len(group)-1]])
			h.Decl = declAt(h, decls, h.index())
			f.Hunks = append(f.Hunks, h)
			if _, inside := f.candidates(h, a, decls); len(inside) > 1 && context[group[0]] < maxContext {
				for _, i := range group {
					context[i]++
				}
				grown = true
			}
			group = nil
		}
		for i, e := range es {
			if len(group) > 0 && e.a1-es[i-1].a2 > context[i-1]+context[i] {
				flush()
			}
			group = append(group, i)
		}
		flush()
		if !grown {
			return f
		}
	}
}

// index is where the old lines begin, counted from 0.
func (h *Hunk) index() int {
	if len(h.Old()) == 0 {
		return h.OldStart
	}
	return h.OldStart - 1
}

// build makes one hunk of neighbouring edits.
func build(a, b []string, es []edit, before, after int) *Hunk {
	var (
		first, last = es[0], es[len(es)-1]
		begin       = max(0, first.a1-before)
		end         = min(len(a), last.a2+after)
		h           = &Hunk{OldStart: begin + 1, NewStart: first.b1 - (first.a1 - begin) + 1}
		pos         = begin
	)
	keep := func(to int) {
		for ; pos < to; pos++ {
			h.Lines = append(h.Lines, Line{' ', a[pos]})
		}
	}
	for _, e := range es {
		keep(e.a1)
		for ; pos < e.a2; pos++ {
			h.Lines = append(h.Lines, Line{'-', a[pos]})
		}
		for _, l := range b[e.b1:e.b2] {
			h.Lines = append(h.Lines, Line{'+', l})
		}
	}
	keep(end)
	if len(h.Old()) == 0 {
		h.OldStart--
	}
	if len(h.New()) == 0 {
		h.NewStart--
	}
	return h
}
