// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"rpcguard/scripts/patchset/internal/tree"
)

type applyOptions struct {
	commit, check, reverse bool
	base                   string
}

// apply puts the whole set onto a checkout, or takes it out: in full or not at
// all.
func (r *repo) apply(dir string, o applyOptions, out io.Writer) error {
	c, err := openCheckout(dir)
	if err != nil {
		return err
	}
	if o.commit && c.git == nil {
		return fmt.Errorf("%s is no git checkout; leave --commit out", dir)
	}
	if !o.check {
		release, err := c.tree.Lock()
		if err != nil {
			return err
		}
		defer release()
	}
	if err := c.recover(o.check, out); err != nil {
		return err
	}
	at, err := c.position()
	if err != nil {
		return err
	}
	if o.commit && at.commit == "" {
		return fmt.Errorf("%s has no commit yet; leave --commit out", dir)
	}
	if err := c.clean(); err != nil {
		switch only, failed := r.onlyApplied(c, o.base); {
		case failed != nil:
			return failed
		case !only:
			return err
		case o.commit && o.reverse:
			return fmt.Errorf("%s: the patches are in it and were never committed; leave --commit out", dir)
		case o.commit:
			return fmt.Errorf("%s: the patches are in it already and not committed; to have a commit for each, take them out (apply --reverse) and apply anew", dir)
		}
	}
	p, planErr := r.choose(c.tree.Read, o.base, o.reverse)
	if planErr != nil {
		var none *noBase
		if !errors.As(planErr, &none) {
			return planErr
		}
		// The other way round it may fit: then there is nothing to do.
		back, err := r.choose(c.tree.Read, o.base, !o.reverse)
		if err != nil {
			return fmt.Errorf("%s: %w", dir, planErr)
		}
		own, err := c.ownState(back.set)
		if err != nil {
			return err
		}
		switch {
		case o.reverse && len(own.absent) == len(back.set.Own):
			fmt.Fprintf(out, "%s: not applied, nothing to take out\n", dir)
			return nil
		case !o.reverse && len(own.same) == len(back.set.Own):
			fmt.Fprintf(out, "%s: already applied (base %s)\n", dir, back.set.Base)
			return nil
		case !o.reverse:
			return fmt.Errorf("%s: the hooks are in it already, but these own files are not as here: %s\ntake the old state out with the release of rpcguard that put it in (apply --reverse), then apply this one", dir, strings.Join(slices.Concat(own.absent, own.differ), ", "))
		default:
			return fmt.Errorf("%s: the hooks are not in it, but own files are: %s", dir, strings.Join(slices.Concat(own.same, own.differ), ", "))
		}
	}
	own, err := c.ownState(p.set)
	if err != nil {
		return err
	}
	var changes []tree.Change
	for _, path := range slices.Sorted(maps.Keys(p.after)) {
		changes = append(changes, tree.Change{Path: path, Data: []byte(p.after[path]), Seen: true, Was: []byte(p.before[path])})
	}
	if o.reverse {
		if len(own.differ)+len(own.absent) > 0 {
			return fmt.Errorf("%s: nothing was changed: these own files are not as they were put in: %s", dir, strings.Join(slices.Concat(own.differ, own.absent), ", "))
		}
		for _, f := range p.set.Own {
			mine, err := f.read()
			if err != nil {
				return err
			}
			changes = append(changes, tree.Change{Path: f.Path, Remove: true, Seen: true, Was: mine})
		}
	} else {
		if len(own.differ) > 0 {
			return fmt.Errorf("%s: nothing was changed: files of these names are there already and are not ours: %s", dir, strings.Join(own.differ, ", "))
		}
		for _, f := range p.set.Own {
			data, err := f.read()
			if err != nil {
				return err
			}
			change := tree.Change{Path: f.Path, Data: data, Seen: true}
			if slices.Contains(own.same, f.Path) {
				change.Was = data
			}
			changes = append(changes, change)
		}
	}
	if err := c.asCommitted(at, p, changes, o); err != nil {
		return err
	}
	if o.check {
		verb := "applies strictly"
		if o.reverse {
			verb = "comes out in full"
		}
		p.table(out)
		fmt.Fprintf(out, "%s: %s, base %s; nothing was written\n", dir, verb, p.set.Base)
		return nil
	}
	head := ""
	if o.commit {
		if head, err = c.commits(at, p, o.reverse, changes); err != nil {
			return err
		}
	}
	// From the first file on an interrupt takes everything back.
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(interrupted)
	if err := c.tree.Write(changes, head, interrupted); err != nil {
		return err
	}
	if head != "" {
		if err := c.moveHead(at, head); err != nil {
			if back := c.tree.Back(); back != nil {
				return errors.Join(err, back)
			}
			return fmt.Errorf("%w\n%s was put back as it was", err, dir)
		}
	}
	if err := c.tree.Done(); err != nil {
		return err
	}
	p.table(out)
	verb := "applied"
	if o.reverse {
		verb = "taken out"
	}
	fmt.Fprintf(out, "%s: %s, base %s, %d own files", dir, verb, p.set.Base, len(p.set.Own))
	if head != "" {
		fmt.Fprintf(out, ", committed as %.12s", head)
	}
	fmt.Fprintln(out)
	return nil
}

// ownState sorts the own files of a set by what a tree has of them.
type ownState struct{ same, differ, absent []string }

func (c *checkout) ownState(s *set) (*ownState, error) {
	st := new(ownState)
	for _, f := range s.Own {
		mine, err := f.read()
		if err != nil {
			return nil, err
		}
		theirs, err := c.tree.Read(f.Path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			st.absent = append(st.absent, f.Path)
		case err != nil:
			return nil, err
		case bytes.Equal(mine, theirs):
			st.same = append(st.same, f.Path)
		default:
			st.differ = append(st.differ, f.Path)
		}
	}
	return st, nil
}

// ownChanges lists the own files that arrive with a patch.
func (p *plan) ownChanges(i int) ([]tree.Change, error) {
	var out []tree.Change
	for _, f := range p.set.Own {
		if p.set.owner(f.Path) != i {
			continue
		}
		data, err := f.read()
		if err != nil {
			return nil, err
		}
		out = append(out, tree.Change{Path: f.Path, Data: data})
	}
	return out, nil
}

// table prints what each patch does.
func (p *plan) table(out io.Writer) {
	t := newTable("patch", "files", "hunks", "lines", "own files")
	for i, q := range p.set.Patches {
		own := 0
		for _, f := range p.set.Own {
			if p.set.owner(f.Path) == i {
				own++
			}
		}
		t.row(q.Name, len(q.Files), q.Hunks(), q.Touched(), own)
	}
	t.print(out)
}
