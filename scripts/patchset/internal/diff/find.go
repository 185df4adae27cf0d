// SPDX-License-Identifier: LGPL-3.0-or-later

package diff

// Find places one hunk (the first of its alternatives that fits) and returns the
// hunk taken and the index of the line at which its old lines begin.
func (f *File) Find(h *Hunk, lines []string) (*Hunk, int, *Miss) {
	decls := Decls(f.Path, lines)
	for _, c := range h.choices() {
		if _, inside := f.candidates(c, lines, decls); len(inside) == 1 {
			return c, inside[0], nil
		}
	}
	all, inside := f.candidates(h, lines, decls)
	return h, 0, f.miss(h, lines, decls, all, inside)
}

// Gone tells whether the declaration that the hunk changes is not in the file,
// which a look at the lines cannot mend.
func (m *Miss) Gone() bool { return m.gone }
