// SPDX-License-Identifier: LGPL-3.0-or-later

package diff

import "slices"

// Merge lays a variant over a patch. A hunk of the variant stands in front of
// the hunk in the same file that makes the same change (only the lines around it
// differ), else of the only one that changes the same declaration; else it is
// one more. What it stands in front of stays as an alternative, and several hunks
// of a variant may make the same change: of alternatives the first that has
// exactly one place is taken.
//
// So a base holds only the hunks that differ, and a hook that changes in the
// main patch cannot be forgotten in a variant: the variant's hunk then stands in
// front of nothing, one of the two finds no place, and applying says so.
func (p *Patch) Merge(variant *Patch) *Patch {
	out := &Patch{Name: p.Name, Head: p.Head}
	for _, f := range p.Files {
		out.Files = append(out.Files, &File{Path: f.Path, Hunks: slices.Clone(f.Hunks), Text: f.Text})
	}
	for _, vf := range variant.Files {
		f := out.File(vf.Path)
		if f == nil {
			out.Put(vf.Path, vf)
			continue
		}
		f.Text = ""
		below := slices.Clone(f.Hunks) // as they were before the variant
		for _, h := range vf.Hunks {
			at := only(below, func(o *Hunk) bool { return sameChange(o, h) && o.Decl == h.Decl })
			if at < 0 {
				at = only(below, func(o *Hunk) bool { return sameChange(o, h) })
			}
			if at < 0 {
				at = only(below, func(o *Hunk) bool { return o.Decl != "" && o.Decl == h.Decl })
			}
			c := *h
			switch {
			case at < 0:
				f.Hunks = append(f.Hunks, &c)
			case f.Hunks[at] == below[at]:
				c.Alt = []*Hunk{below[at]}
				f.Hunks[at] = &c
			default: // a second one for the same place
				first := *f.Hunks[at]
				first.Alt = slices.Insert(slices.Clone(first.Alt), len(first.Alt)-1, &c)
				f.Hunks[at] = &first
			}
		}
	}
	return out
}

// only returns the index of the one hunk that is wanted, -1 if there is none or
// more than one.
func only(hunks []*Hunk, wanted func(*Hunk) bool) int {
	at := slices.IndexFunc(hunks, wanted)
	if at >= 0 && slices.ContainsFunc(hunks[at+1:], wanted) {
		return -1
	}
	return at
}

// choices lists a hunk and all its alternatives in the order in which they are
// tried.
func (h *Hunk) choices() []*Hunk {
	out := []*Hunk{h}
	for _, a := range h.Alt {
		out = append(out, a.choices()...)
	}
	return out
}

// Choose settles alternatives for a text: the first that has exactly one place
// (or, in reverse, whose new lines stand there) is taken. A hunk none of whose
// alternatives fits stays as it is, to be reported.
func (f *File) Choose(text string, reverse bool) *File {
	if !slices.ContainsFunc(f.Hunks, func(h *Hunk) bool { return len(h.Alt) > 0 }) {
		return f
	}
	var (
		lines = Split(text)
		decls = Decls(f.Path, lines)
		out   = &File{Path: f.Path}
	)
	for _, h := range f.Hunks {
		chosen := h
		for _, c := range h.choices() {
			fits := false
			if reverse {
				fits = len(matches(c, c.New(), lines)) > 0
			} else {
				_, inside := f.candidates(c, lines, decls)
				fits = len(inside) == 1
			}
			if fits {
				chosen = c
				break
			}
		}
		out.Hunks = append(out.Hunks, chosen)
	}
	return out
}

// Without returns the patch without the hunks that change a declaration of a
// file.
func (p *Patch) Without(path, decl string) *Patch {
	out := &Patch{Name: p.Name, Head: p.Head}
	for _, f := range p.Files {
		if f.Path == path {
			rest := slices.DeleteFunc(slices.Clone(f.Hunks), func(h *Hunk) bool { return h.Decl == decl })
			if len(rest) == 0 {
				continue
			}
			if len(rest) != len(f.Hunks) {
				f = &File{Path: f.Path, Hunks: rest}
			}
		}
		out.Files = append(out.Files, f)
	}
	return out
}

// Variant returns what of p is not in main already, alternatives included, nil if
// nothing is: the inverse of Merge.
func (p *Patch) Variant(main *Patch, head string) *Patch {
	out := &Patch{Name: p.Name, Head: head}
	for _, f := range p.Files {
		var (
			mf   = main.File(f.Path)
			here = &File{Path: f.Path}
		)
		for _, h := range f.Hunks {
			for _, c := range h.choices() {
				if mf == nil || !mf.has(c) {
					here.Hunks = append(here.Hunks, c)
				}
			}
		}
		if len(here.Hunks) > 0 {
			out.Files = append(out.Files, here)
		}
	}
	if len(out.Files) == 0 {
		return nil
	}
	return out
}

// has tells whether a hunk stands in a section, be it as an alternative.
func (f *File) has(h *Hunk) bool {
	return slices.ContainsFunc(f.Hunks, func(o *Hunk) bool {
		return slices.ContainsFunc(o.choices(), func(c *Hunk) bool { return c.Decl == h.Decl && slices.Equal(c.Lines, h.Lines) })
	})
}

// Keep gives a section that was made anew from a text the alternatives of the one
// it replaces: what a release has no use for, others have. A hunk whose change is
// the same keeps them; one that changed may replace the only alternative that a
// base has, if that is the one in use. Any other is returned: whether the change
// goes for the alternatives, too, nobody can tell from here. f may be nil, for a
// section of which nothing is left.
func (f *File) Keep(old *File, text string) *Hunk {
	used := old.Choose(text, false)
	for i, o := range old.Hunks {
		if len(o.Alt) == 0 {
			continue
		}
		u, at := used.Hunks[i], -1
		if f != nil {
			at = only(f.Hunks, func(h *Hunk) bool { return sameChange(h, u) && h.Decl == u.Decl })
		}
		switch {
		case at < 0 && (u != o || len(o.Alt) > 1):
			return u
		case at < 0:
		case u != o:
			f.Hunks[at] = o
		default:
			f.Hunks[at].Alt = o.Alt
		}
	}
	return nil
}

// sameChange tells whether two hunks add and remove the same lines.
func sameChange(a, b *Hunk) bool {
	changes := func(h *Hunk) []Line {
		return slices.DeleteFunc(slices.Clone(h.Lines), func(l Line) bool { return l.Op == ' ' })
	}
	return slices.Equal(changes(a), changes(b))
}
