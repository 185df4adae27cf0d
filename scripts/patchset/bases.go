// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// targets reads patches/targets: one release a line, # begins a comment.
func (r *repo) targets() ([]string, error) {
	data, err := os.ReadFile(r.path("patches", "targets"))
	if err != nil {
		return nil, err
	}
	var out []string
	for line := range strings.SplitSeq(string(data), "\n") {
		line, _, _ = strings.Cut(line, "#")
		if f := strings.Fields(line); len(f) > 0 {
			out = append(out, f[0])
		}
	}
	return out, nil
}

// basesOptions says how far each target is tried beyond building what is touched.
type basesOptions struct {
	quick    bool   // only lay the tree, and vet rpc and compile what else has variants
	test     bool   // run the tests of what is touched; what fails is tried on the untouched release, too
	attacks  string // slowclient's --only for the command built there; "quick": its quick set; "": none
	resume   bool   // leave out what an earlier run has found good
	markdown bool   // print the table of the documents; by itself, of what is kept
}

// compiled are the packages that bases --quick compiles besides rpc, tests included: those
// that have variants on older bases. Vet's other checks find faults of upstream's there.
var compiled = []string{"rpc", "eth/filters", "eth/tracers", "eth/tracers/logger", "graphql"}

// basesTable applies the patches to every target, builds what they touch and does
// what the options ask for. A target is a release or a directory; of a directory only
// a copy is changed. A target that fails does not stop the others, and what each
// came to is kept (see keptRows), so that a run cut off loses one target.
func (r *repo) basesTable(args []string, o basesOptions, out io.Writer) error {
	kept, err := r.readKept()
	if err != nil {
		return err
	}
	all := len(args) == 0
	if all {
		if args, err = r.targets(); err != nil {
			return err
		}
	}
	var targets []target
	for _, arg := range args {
		t, err := r.resolve(arg)
		if err != nil {
			return err
		}
		targets = append(targets, t)
	}
	if o.markdown && !o.quick && !o.test && o.attacks == "" {
		return r.printKept(targets, kept, all, out)
	}
	var failed []string
	var rows []*targetRow
	for _, t := range targets {
		state, err := r.state(t)
		if err != nil {
			return err
		}
		row, try := kept.row(t), o
		if row == nil || !o.resume || !row.judged(t, state) {
			// What was found in another state is no part of this one.
			row, try.resume = new(targetRow), false
		}
		row.Target, row.Path, row.State = t.name, t.path, state
		if o.resume && row.complete(o) {
			fmt.Fprintf(out, "%s: as before\n", t.name)
		} else {
			begin := time.Now()
			err := r.tryTarget(t, row, try, out)
			row.Error = ""
			if err != nil {
				row.Error = err.Error()
			}
			row.Seconds = int(time.Since(begin).Seconds())
			kept.put(t, row)
			if err := r.writeKept(kept); err != nil {
				return err
			}
			fmt.Fprintf(out, "%s: applies %s, builds %s, tests %s, attacks %s, %d s\n", t.name, row.Applies, row.Builds, row.tests(), row.attacks(), row.Seconds)
		}
		rows = append(rows, row)
		if row.Error != "" {
			failed = append(failed, t.name)
		}
	}
	fmt.Fprintln(out)
	printRows(out, rows, o.markdown)
	if len(failed) > 0 {
		return fmt.Errorf("not as it should be: %s", strings.Join(failed, ", "))
	}
	return nil
}

func (r *repo) tryTarget(t target, row *targetRow, o basesOptions, out io.Writer) error {
	row.Base, row.Applies, row.Builds, row.Hunks, row.Lines = "-", "no", "-", 0, 0
	p, dir, stock, err := r.layTarget(t)
	if err != nil {
		return err
	}
	row.Base, row.Applies = p.set.Base, "strictly"
	for _, q := range p.set.Patches {
		row.Hunks += q.Hunks()
		row.Lines += q.Touched()
	}
	if o.quick {
		args := []string{"vet", "-buildtag"}
		for _, name := range compiled {
			if hasDir(dir, name) {
				args = append(args, "./"+name)
			}
		}
		for _, args := range [][]string{{"vet", "./rpc"}, args} {
			if text, err := goRun(dir, args...); err != nil {
				row.Builds = "no"
				return fmt.Errorf("%s: %s", strings.Join(args, " "), text)
			}
		}
		row.Builds = vetted
		return nil
	}
	row.Builds = "no"
	bin, err := r.buildNode(dir, t, row)
	if err != nil {
		return err
	}
	var bad []error
	if o.test {
		bad = append(bad, row.runTests(dir, stock, p.set, o.resume, out))
	}
	if o.attacks != "" {
		bad = append(bad, r.attack(bin, t, row, o))
	}
	return errors.Join(bad...)
}

// layTarget lays a release, or applies the patches to a copy of a directory, and
// tells where the patched tree lies and where the untouched one.
func (r *repo) layTarget(t target) (p *plan, dir, stock string, err error) {
	if t.dir {
		dir = r.path("build", "bases", t.file)
		if err := os.RemoveAll(dir); err != nil {
			return nil, "", "", err
		}
		if err := copyTree(t.path, dir); err != nil {
			return nil, "", "", err
		}
		c, err := openCheckout(dir)
		if err != nil {
			return nil, "", "", err
		}
		if p, err = r.choose(c.tree.Read, "", false); err != nil {
			return nil, "", "", err
		}
		return p, dir, t.path, r.apply(dir, applyOptions{base: p.set.Base}, io.Discard)
	}
	l, err := r.openLaid(t.path)
	if err != nil {
		return nil, "", "", err
	}
	if stock, _, err = r.upstream(l.version); err != nil {
		return nil, "", "", err
	}
	if err := l.lay("", false, io.Discard); err != nil {
		return nil, "", "", err
	}
	p, err = r.planFor(stock, "")
	return p, l.dir, stock, err
}
