// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"slices"

	"rpcguard/scripts/patchset/internal/diff"
)

// history is one upstream file with the life of its lines over the series: all
// lines that any state has, in order, each with the patch that adds it (0:
// upstream) and the one that removes it (0: none). The file after patch j
// consists of the lines with born <= j that are not dead by then.
//
// With this, giving an edit to patch k is marking lines, and every later patch
// sees the edit as its own starting point. What a patch removes stays in the
// list, so an edit beside a removed line finds its owner too.
type history struct {
	lines []*life
}

type life struct {
	text       string
	born, dead int
}

func (l *life) alive(j int) bool { return l.born <= j && (l.dead == 0 || l.dead > j) }

// newHistory follows a file from upstream's text through the series.
func newHistory(path, text string, patches []*diff.Patch) (*history, error) {
	h := new(history)
	for _, s := range diff.Split(text) {
		h.lines = append(h.lines, &life{text: s})
	}
	for j, p := range patches {
		f := p.File(path)
		if f == nil {
			continue
		}
		state := h.state(j)
		f = f.Choose(diff.Join(texts(state)), false)
		places, misses := f.Place(texts(state))
		if len(misses) > 0 {
			return nil, misses[0]
		}
		after := diff.Replace(f, state, places, false, func(s string) *life { return &life{text: s, born: j + 1} })
		left := make(map[*life]bool)
		for _, l := range after {
			left[l] = true
		}
		// Merge: dead lines keep their place in front of what replaces them.
		var merged []*life
		i := 0
		for _, l := range h.lines {
			if !l.alive(j) {
				merged = append(merged, l)
				continue
			}
			if !left[l] {
				l.dead = j + 1
				merged = append(merged, l)
				continue
			}
			for after[i] != l {
				merged = append(merged, after[i])
				i++
			}
			merged = append(merged, l)
			i++
		}
		h.lines = append(merged, after[i:]...)
	}
	return h, nil
}

// state returns the lines after patch j.
func (h *history) state(j int) []*life {
	var out []*life
	for _, l := range h.lines {
		if l.alive(j) {
			out = append(out, l)
		}
	}
	return out
}

func texts(lines []*life) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = l.text
	}
	return out
}

// owners returns the patches whose lines an edit of the last state changes,
// and those that it only touches from beside.
func (h *history) owners(state []*life, e diff.Edit) (inside, beside []int) {
	add := func(to *[]int, k int) {
		if k > 0 && !slices.Contains(*to, k) {
			*to = append(*to, k)
		}
	}
	for _, l := range state[e.From:e.To] {
		add(&inside, l.born)
	}
	begin, end := 0, len(h.lines)
	if e.From > 0 {
		add(&beside, state[e.From-1].born)
		begin = slices.Index(h.lines, state[e.From-1]) + 1
	}
	if e.To < len(state) {
		add(&beside, state[e.To].born)
		end = slices.Index(h.lines, state[e.To])
	}
	for _, l := range h.lines[begin:end] {
		add(&beside, l.dead)
	}
	return inside, beside
}

// change gives an edit of the last state to patch k.
func (h *history) change(state []*life, e diff.Edit, with []string, k int) {
	at := 0
	switch {
	case e.To > e.From:
		at = slices.Index(h.lines, state[e.To-1]) + 1
	case e.From > 0:
		at = slices.Index(h.lines, state[e.From-1]) + 1
	}
	var fresh []*life
	for _, s := range with {
		fresh = append(fresh, &life{text: s, born: k})
	}
	h.lines = slices.Insert(h.lines, at, fresh...)
	for _, l := range state[e.From:e.To] {
		if l.born == k {
			h.lines = slices.DeleteFunc(h.lines, func(x *life) bool { return x == l })
		} else {
			l.dead = k
		}
	}
}
