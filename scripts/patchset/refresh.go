// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"rpcguard/scripts/patchset/internal/diff"
	"rpcguard/scripts/patchset/internal/tree"
)

// selection limits a refresh to files, or to the edits at lines of files.
type selection map[string][]int

func parseSelection(args []string) (selection, error) {
	if len(args) == 0 {
		return nil, nil
	}
	s := make(selection)
	for _, a := range args {
		path, line, ok := strings.Cut(a, ":")
		path = filepath.ToSlash(filepath.Clean(path))
		if !ok {
			s[path] = append(s[path], 0)
			continue
		}
		n, err := strconv.Atoi(line)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q: want FILE or FILE:LINE", a)
		}
		s[path] = append(s[path], n)
	}
	return s, nil
}

// has tells whether an edit that ends up in lines from..to (from 0) is meant.
func (s selection) has(path string, from, to int) bool {
	if s == nil {
		return true
	}
	for _, n := range s[path] {
		if n == 0 || (n-1 >= from && n-1 < max(to, from+1)) {
			return true
		}
	}
	return false
}

// refresh writes edited hooks back to patches/. Every edit goes to the patch
// whose lines it changes or stands beside; one that belongs to none goes to the
// patch named by into, or is a refusal. Either all patches are written or none.
func (l *laid) refresh(base, into string, only selection, all bool, out io.Writer) error {
	if l.ref(refHead) == "" {
		return fmt.Errorf("%s is not laid yet; run `patchset fork`", l.rel())
	}
	if l.ref(refEdits) != "" {
		return fmt.Errorf("an earlier `patchset fork` was cut off while it carried edits over in %s; run it again first", l.rel())
	}
	upstream, src, err := l.importUpstream()
	if err != nil {
		return err
	}
	module, err := tree.Open(src, "")
	if err != nil {
		return err
	}
	p, err := l.repo.choose(module.Read, base, false)
	if err != nil {
		return err
	}
	head, err := commitSteps(l.git, upstream, p, nil)
	if err != nil {
		return err
	}
	if head != l.ref(refHead) {
		return fmt.Errorf("patches/ or the pinned release changed since %s was laid; run `patchset fork` first (it carries edits over)", l.rel())
	}
	taken, err := l.takeBack(p.set)
	for _, t := range taken {
		fmt.Fprintf(out, "%s: taken back from %s\n", t, l.rel())
	}
	if err != nil {
		return err
	}
	edited, err := l.dirty()
	if err != nil {
		return err
	}
	for path := range only {
		if !slices.Contains(edited, path) {
			return fmt.Errorf("%s has no edits in %s", path, l.rel())
		}
	}

	patches := slices.Clone(p.set.Patches)
	intoAt := 0
	if into != "" {
		into = strings.TrimSuffix(filepath.Base(into), ".patch")
		intoAt = 1 + slices.IndexFunc(patches, func(q *diff.Patch) bool { return q.Name == into })
		if intoAt == 0 {
			patches = append(patches, l.repo.newPatch(into))
			intoAt = len(patches)
		}
	}
	var (
		last    = len(patches)
		refused []string
		want    = make(map[string]string) // the edited files as they will be after the series
		changed = make(map[int][]string)  // by patch index, what to say about it
		work    = make([]*diff.Patch, last)
	)
	for i, q := range patches {
		c := *q
		c.Files = slices.Clone(q.Files)
		work[i] = &c
	}
	for _, path := range edited {
		if only != nil && only[path] == nil {
			continue
		}
		now, err := os.ReadFile(filepath.Join(l.dir, filepath.FromSlash(path)))
		if err != nil {
			refused = append(refused, fmt.Sprintf("%s: removed; a hook never removes one of upstream's files", path))
			continue
		}
		up, err := l.show(upstream, path)
		if err != nil {
			refused = append(refused, fmt.Sprintf("%s: new in a commit; own files belong into the repository, untracked in %s", path, l.rel()))
			continue
		}
		h, err := newHistory(path, up, p.set.Patches)
		if err != nil {
			return err
		}
		before := make([]string, last+1)
		for j := range before {
			before[j] = diff.Join(texts(h.state(j)))
		}
		state, lines := h.state(last), diff.Split(string(now))
		for _, e := range diff.Edits(texts(state), lines) {
			if !only.has(path, e.NewFrom, e.NewTo) {
				continue
			}
			inside, beside := h.owners(state, e)
			k := 0
			switch {
			case len(inside) == 1:
				k = inside[0]
			case len(inside) > 1:
				refused = append(refused, fmt.Sprintf("%s:%d: one edit changes lines of two patches, %s and %s; make it in two steps with a refresh in between",
					path, e.NewFrom+1, patches[inside[0]-1].Name, patches[inside[1]-1].Name))
				continue
			case intoAt > 0:
				k = intoAt
			case len(beside) == 1:
				k = beside[0]
			default:
				refused = append(refused, unowned(path, e, state, lines))
				continue
			}
			h.change(state, e, lines[e.NewFrom:e.NewTo], k)
			changed[k-1] = append(changed[k-1], fmt.Sprintf("%s:%d", path, e.NewFrom+1))
		}
		want[path] = diff.Join(texts(h.state(last)))
		for j := 1; j <= last; j++ {
			from, to := diff.Join(texts(h.state(j-1))), diff.Join(texts(h.state(j)))
			if from == before[j-1] && to == before[j] {
				continue
			}
			if err := remade(work[j-1], path, before[j-1], diff.Make(path, from, to), p.set.Base); err != nil {
				refused = append(refused, err.Error())
			}
		}
	}
	if len(refused) > 0 {
		return fmt.Errorf("nothing was written:\n%s", strings.Join(refused, "\n"))
	}
	if all {
		if err := remake(work, module.Read, p.set.Base); err != nil {
			return err
		}
	}
	return l.writePatches(p.set.Base, p.set.Patches, work, want, changed, module.Read, out)
}

// unowned words the refusal of an edit that no patch owns.
func unowned(path string, e diff.Edit, state []*life, lines []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d: this edit of upstream's lines belongs to no patch:\n", path, e.NewFrom+1)
	for _, l := range state[e.From:e.To] {
		fmt.Fprintf(&b, "    -%s\n", strings.TrimRight(l.text, "\r\n"))
	}
	for _, s := range lines[e.NewFrom:e.NewTo] {
		fmt.Fprintf(&b, "    +%s\n", strings.TrimRight(s, "\r\n"))
	}
	fmt.Fprintf(&b, "  `patchset refresh --into NAME %s:%d` gives it to patches/NAME.patch (made if it is new)", path, e.NewFrom+1)
	return b.String()
}

// newPatch begins a patch; one that a lift has left empty keeps its header.
func (r *repo) newPatch(name string) *diff.Patch {
	if head, err := os.ReadFile(r.liftDir(name + ".head")); err == nil {
		return &diff.Patch{Name: name, Head: string(head)}
	}
	return &diff.Patch{Name: name, Head: "Subject: TODO: one line, as in \"rpc: what changes\"\n" +
		"Reason: TODO why upstream's own lines have to change\nHooks: TODO file and declaration, one a line\nUpstream-Status: not offered\n"}
}

// remade puts a section that was made anew into a patch, with what other releases
// have in place of its hunks; text is what the old section was made for.
func remade(p *diff.Patch, path, text string, f *diff.File, base string) error {
	if old := p.File(path); old != nil {
		if h := f.Keep(old, text); h != nil {
			return fmt.Errorf("%s: %s.patch has alternatives for the hunk in %s, for other trees of base %s: edit it by hand there", path, p.Name, h.Decl, base)
		}
	}
	p.Put(path, f)
	return nil
}

// remake writes every section anew from the texts.
func remake(patches []*diff.Patch, read reader, base string) error {
	text := make(map[string]string)
	for _, p := range patches {
		for _, f := range slices.Clone(p.Files) {
			if _, ok := text[f.Path]; !ok {
				data, err := read(f.Path)
				if err != nil {
					return err
				}
				text[f.Path] = string(data)
			}
			next, misses := f.Choose(text[f.Path], false).Apply(text[f.Path], false)
			if len(misses) > 0 {
				return misses[0]
			}
			if err := remade(p, f.Path, text[f.Path], diff.Make(f.Path, text[f.Path], next), base); err != nil {
				return fmt.Errorf("nothing was written: %w", err)
			}
			text[f.Path] = next
		}
	}
	return nil
}

// variant is the file of a base for a patch: what of it is not in the patch below
// already, nil if there is neither anything of that kind nor a file.
func (l *laid) variant(q, below *diff.Patch, base, at string) ([]byte, error) {
	head := fmt.Sprintf("What of patches/%s.patch is different on %s.\n", q.Name, base)
	data, err := os.ReadFile(at)
	there := err == nil
	if there {
		v, err := diff.ParseVariant(q.Name, data)
		if err != nil {
			return nil, err
		}
		head = v.Head
	}
	v := q.Variant(below, head)
	switch {
	case v != nil:
		return v.Format(), nil
	case there:
		return nil, fmt.Errorf("%s is no longer different on base %s; remove %s.patch there", q.Name, base, q.Name)
	}
	return nil, nil
}

// writePatches checks the new series against upstream, writes what differs and
// makes build/fork's commits of it. The work tree is not touched.
func (l *laid) writePatches(base string, old, work []*diff.Patch, want map[string]string, changed map[int][]string, read reader, out io.Writer) error {
	for i, q := range work {
		if len(q.Files) == 0 && (i >= len(old) || len(old[i].Files) > 0) {
			return fmt.Errorf("nothing was written: patch %s would be left empty. To drop it, remove patches/%s.patch and its line in patches/series, then run `patchset fork --force`", q.Name, q.Name)
		}
	}
	dirs, err := l.repo.baseDirs(base)
	if err != nil {
		return err
	}
	var changes []tree.Change
	for i, q := range work {
		data := q.Format()
		if i < len(old) && bytes.Equal(data, old[i].Format()) {
			continue // parsing it anew would lose its alternatives
		}
		if work[i], err = diff.Parse(q.Name, data); err != nil {
			return fmt.Errorf("nothing was written: %w", err)
		}
		at := filepath.Join(dirs[0], q.Name+".patch")
		// Another base never changes the patch of the main one: its edit becomes
		// a variant that holds only what differs.
		if len(dirs) > 1 && i < len(old) {
			if below, err := loadPatch(dirs[1:], q.Name); err == nil {
				if data, err = l.variant(q, below, base, at); err != nil {
					return fmt.Errorf("nothing was written: %w", err)
				}
				// From here on it is what the next run will read.
				work[i] = below
				if data == nil {
					continue
				}
				v, err := diff.ParseVariant(q.Name, data)
				if err != nil {
					return fmt.Errorf("nothing was written: %w", err)
				}
				work[i] = below.Merge(v)
			}
		}
		if now, err := os.ReadFile(at); err == nil && bytes.Equal(now, data) {
			continue
		}
		name, err := filepath.Rel(l.repo.root, at)
		if err != nil {
			return err
		}
		changes = append(changes, tree.Change{Path: filepath.ToSlash(name), Data: data})
	}
	desc, err := l.repo.describe(base)
	if err != nil {
		return err
	}
	next := &set{Base: base, Patches: slices.Clone(work)}
	if err := next.leaveOut(desc.optional, read, false); err != nil {
		return err
	}
	p, err := planSet(next, read, false)
	if err != nil {
		return fmt.Errorf("nothing was written: the new patches do not apply strictly: %w", err)
	}
	for path, text := range want {
		got, ok := p.after[path]
		if !ok { // all its hooks are gone
			data, err := read(path)
			if err != nil {
				return err
			}
			got = string(data)
		}
		if got != text {
			return fmt.Errorf("nothing was written: the new patches do not give %s as edited; a defect of this tool", path)
		}
	}
	if len(work) > len(old) {
		series, err := filepath.Rel(l.repo.root, filepath.Join(dirs[0], "series"))
		if err != nil {
			return err
		}
		data, err := os.ReadFile(filepath.Join(l.repo.root, series))
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		if err != nil && dirs[0] != l.repo.path("patches") {
			for _, q := range old {
				data = append(data, q.Name+"\n"...)
			}
		}
		for _, q := range work[len(old):] {
			data = append(data, q.Name+"\n"...)
		}
		changes = append(changes, tree.Change{Path: filepath.ToSlash(series), Data: data})
	}
	if len(changes) == 0 {
		fmt.Fprintln(out, "patches/ is up to date")
		return nil
	}
	t, err := tree.Open(l.repo.root, patchesJournal)
	if err != nil {
		return err
	}
	if err := t.Write(changes, "", nil); err != nil {
		return err
	}
	if err := t.Done(); err != nil {
		return err
	}
	for _, c := range changes {
		fmt.Fprintf(out, "wrote %s\n", c.Path)
	}
	for i, q := range work {
		if len(changed[i]) > 0 {
			fmt.Fprintf(out, "  %s: %s\n", q.Name, strings.Join(changed[i], ", "))
		}
		if strings.Contains(q.Head, "TODO") {
			fmt.Fprintf(out, "  %s: header has a TODO\n", q.Name)
		}
	}
	head, err := commitSteps(l.git, l.ref(refUpstream), p, nil)
	if err != nil {
		return err
	}
	for _, args := range [][]string{{"symbolic-ref", "HEAD", branch}, {"update-ref", branch, head}, {"update-ref", refHead, head}, {"reset", "-q", "--mixed"}} {
		if _, err := l.git.Run(args...); err != nil {
			return err
		}
	}
	return nil
}
