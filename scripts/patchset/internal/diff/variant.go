// SPDX-License-Identifier: LGPL-3.0-or-later

package diff

import "slices"

// Merge lays a variant over a patch. A hunk of the variant takes the place of
// the hunk in the same file that makes the same change (only the lines around
// it differ), else of the only one that changes the same declaration; else it
// is one more. All other hunks stay.
//
// So a base holds only the hunks that differ, and a hook that changes in the
// main patch cannot be forgotten in a variant: the variant's hunk then replaces
// nothing, the main one finds no place on that base, and applying says so.
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
		fixed := make(map[*Hunk]bool) // those that the variant has put here
		for _, h := range vf.Hunks {
			at := slices.IndexFunc(f.Hunks, func(o *Hunk) bool { return !fixed[o] && sameChange(o, h) })
			if at < 0 {
				same := func(o *Hunk) bool { return !fixed[o] && o.Decl != "" && o.Decl == h.Decl }
				if at = slices.IndexFunc(f.Hunks, same); at >= 0 && slices.ContainsFunc(f.Hunks[at+1:], same) {
					at = -1
				}
			}
			if at < 0 {
				f.Hunks = append(f.Hunks, h)
			} else {
				f.Hunks[at] = h
			}
			fixed[h] = true
		}
	}
	return out
}

// Variant returns what of p is not in main already, nil if nothing is: the
// inverse of Merge.
func (p *Patch) Variant(main *Patch, head string) *Patch {
	out := &Patch{Name: p.Name, Head: head}
	for _, f := range p.Files {
		var (
			mf   = main.File(f.Path)
			here = &File{Path: f.Path}
		)
		for _, h := range f.Hunks {
			if mf == nil || !slices.ContainsFunc(mf.Hunks, func(o *Hunk) bool {
				return o.Decl == h.Decl && slices.Equal(o.Lines, h.Lines)
			}) {
				here.Hunks = append(here.Hunks, h)
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

// sameChange tells whether two hunks add and remove the same lines.
func sameChange(a, b *Hunk) bool {
	changes := func(h *Hunk) []Line {
		return slices.DeleteFunc(slices.Clone(h.Lines), func(l Line) bool { return l.Op == ' ' })
	}
	return slices.Equal(changes(a), changes(b))
}
