// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"

	"rpcguard/scripts/patchset/internal/tree"
)

// Lifting moves the pin to another release. Each hunk is placed on the old and
// on the new one, and what became of it is told. If all have a place, the pin
// moves, patches/ is written anew and the checks run. If not, the patches are
// written without the hunks that have none, the new release is laid under
// build/fork, and those hunks are made there by hand and given back to their
// patches with refresh; --continue then looks whether every one is back or dropped.

// liftOptions says what a lift does beyond what it reports.
type liftOptions struct {
	lay  bool // with --from: lay the release under build/ and check it there
	test bool // build and test what was lifted
}

// lift reports, and without --from moves the pin. An older base has no pin: its hunks
// are placed anew in every tree, so lifting it is to lay the release and to check it.
func (r *repo) lift(from, to, base, history string, o liftOptions, out io.Writer) error {
	pin, err := r.pin()
	if err != nil {
		return err
	}
	dry := from != ""
	if !dry {
		from = pin
		if _, err := os.Stat(r.liftDir("state")); err == nil {
			return errors.New("a lift is under way; finish it with `patchset lift --continue` or take it back with `patchset lift --abort`")
		}
		if s, err := r.git().Run("status", "--porcelain", "--", "go.mod", "go.sum", "patches"); err != nil || s != "" {
			return fmt.Errorf("go.mod, go.sum or patches/ have changes that are not committed; commit them first\n%s", s)
		}
		if to == pin {
			return fmt.Errorf("%s is pinned already", pin)
		}
	}
	var trees [2]*tree.Tree
	for i, v := range []string{from, to} {
		dir, _, err := r.upstream(v)
		if err != nil {
			return err
		}
		if trees[i], err = tree.Open(dir, ""); err != nil {
			return err
		}
	}
	p, err := r.choose(trees[0].Read, base, false)
	if err != nil {
		return err
	}
	fates, partial, err := compare(p.set, trees[0].Read, trees[1].Read)
	if err != nil {
		return err
	}
	unfit, err := r.unfit(p.set, trees[1].Read)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "lift from %s to %s, base %s\n", from, to, p.set.Base)
	if err := printFates(append(fates, unfit...), from, to, history, out); err != nil {
		return err
	}
	lost := slices.DeleteFunc(slices.Clone(fates), func(f *fate) bool { return f.miss == nil })
	// No lift mends that: what goes with the release has to be there first.
	if len(unfit) > 0 {
		next := "mend the own files and the probes in the file `base`, and keep what they are now under patches/bases/NAME"
		if q, err := r.choose(trees[1].Read, "", false); err == nil {
			next = "base " + q.set.Base + " fits it as it is"
		}
		return fmt.Errorf("%s is not for base %s, and nothing was changed: %s; %d hunks have no place there\n%s", to, p.set.Base, unfit[0].why, len(lost), next)
	}
	if dry {
		if len(lost) > 0 {
			return fmt.Errorf("%d hunks have no place on %s", len(lost), to)
		}
		if !o.lay {
			return nil
		}
		l, err := r.openLaid(to)
		if err != nil {
			return err
		}
		if err := l.lay(p.set.Base, false, out); err != nil {
			return err
		}
		if o.test {
			if err := l.check(p.set.Own, out); err != nil {
				return err
			}
		}
		return r.addTarget(to, out)
	}
	if p.set.Base != mainBase {
		return fmt.Errorf("the pinned release is served by base %s; only the main base is lifted", p.set.Base)
	}
	l, err := r.openLaid("")
	if err != nil {
		return err
	}
	if l.ref(refHead) != "" {
		// They would stand in the way once the new release is to be laid.
		if edits, err := l.dirty(); err != nil || len(edits) > 0 {
			return errors.Join(err, fmt.Errorf("nothing was changed: %s has edits that are not in patches/: %s\n`patchset refresh` writes them there, `patchset fork --force` throws them away", l.rel(), strings.Join(edits, ", ")))
		}
	}
	state := &liftState{From: from, To: to, Lost: lostHunks(lost), Partial: partialTexts(partial, len(lost))}
	if err := r.saveLift(state); err != nil {
		return err
	}
	if err := r.movePin(to); err != nil {
		return errors.Join(err, r.abortLift(io.Discard))
	}
	if len(lost) == 0 {
		return r.finishLift(state, o.test, out)
	}
	if err := r.writePartial(state, partial); err != nil {
		return errors.Join(err, r.abortLift(io.Discard))
	}
	if l, err = r.openLaid(""); err != nil {
		return err
	}
	laid := l.lay(mainBase, false, out)
	var b strings.Builder
	fmt.Fprintf(&b, "stopped: %d hunks have no place on %s. ", len(lost), to)
	if laid != nil {
		fmt.Fprintf(&b, "%s could not be laid:\n%v\nmend that and run `patchset fork`; then, for each hunk, edit the file there and give it back:\n", l.rel(), laid)
	} else {
		fmt.Fprintf(&b, "%s is laid without them; for each, edit the file there and give it back:\n", l.rel())
	}
	for _, h := range state.Lost {
		fmt.Fprintf(&b, "  %s %s: patchset refresh --into %s %s\n", h.Path, h.Hunk.Decl, h.Patch, h.Path)
	}
	b.WriteString("then `patchset lift --continue` (with --drop for one that is not needed); `patchset lift --abort` takes the lift back")
	return errors.New(b.String())
}

// movePin changes the require line and has the go command put go.sum right.
func (r *repo) movePin(version string) error {
	for _, args := range [][]string{{"mod", "edit", "-require=" + module + "@" + version}, {"mod", "download", module}, {"mod", "tidy"}} {
		cmd := exec.Command("go", args...)
		cmd.Dir = r.root
		cmd.Env = append(os.Environ(), "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return nil
}

// continueLift looks whether every lost hunk is back or was dropped, and finishes.
func (r *repo) continueLift(drop []string, test bool, out io.Writer) error {
	s, err := r.liftUnderWay()
	if err != nil {
		return err
	}
	if len(drop) > 0 {
		for _, name := range drop {
			if err := s.drop(name); err != nil {
				return err
			}
		}
		if err := r.writeState(s); err != nil {
			return err
		}
		fmt.Fprintf(out, "dropped: %s\nOlder bases take their hunks from patches/: where one needs what was dropped, put it under patches/bases/NAME; `git show HEAD:patches/NAME.patch` has it\n", strings.Join(drop, ", "))
	}
	set, err := r.load(mainBase)
	if err != nil {
		return underWay(err)
	}
	missing, err := s.missing(set)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return fmt.Errorf("still without their hunks:\n%s\nedit build/fork, then `patchset refresh --into NAME FILE`; what upstream made unnecessary, or is made in another way, is dropped as shown", strings.Join(missing, "\n"))
	}
	return r.finishLift(s, test, out)
}

// underWay adds to an error what can be done about it.
func underWay(err error) error {
	return fmt.Errorf("%w\nthe lift is under way: mend this and run `patchset lift --continue`, or take it back with `patchset lift --abort`", err)
}

// finishLift restores the order, writes the patches with the new line numbers
// and runs the checks.
func (r *repo) finishLift(s *liftState, test bool, out io.Writer) error {
	order, err := r.restoredOrder(s, out)
	if err != nil {
		return err
	}
	if err := os.WriteFile(r.path("patches", "series"), []byte(order), 0o644); err != nil {
		return err
	}
	l, err := r.openLaid("")
	if err != nil {
		return underWay(err)
	}
	if err := l.lay(mainBase, false, out); err != nil {
		return underWay(err)
	}
	if err := l.refresh(mainBase, "", nil, true, out); err != nil {
		return underWay(err)
	}
	if test {
		set, err := r.load(mainBase)
		if err != nil {
			return underWay(err)
		}
		if err := l.check(set.Own, out); err != nil {
			return underWay(err)
		}
	}
	fmt.Fprintf(out, "%s is pinned\n", s.To)
	return os.RemoveAll(r.liftDir())
}

// check builds and tests what the patches touch.
func (l *laid) check(own []ownFile, out io.Writer) error {
	for _, args := range checks(l.dir, own) {
		fmt.Fprintf(out, "go %s\n", strings.Join(args, " "))
		cmd := exec.Command("go", args...)
		cmd.Dir = l.dir
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("go %s in %s: %w", strings.Join(args, " "), l.rel(), err)
		}
	}
	return nil
}

// checks are the go commands that judge a laid tree: all tests of the packages that
// have most hooks, and ours wherever else there are some.
func checks(dir string, own []ownFile) [][]string {
	whole := []string{"./rpc", "./node", "./eth/filters"}
	var ours []string
	for _, f := range own {
		name := "./" + path.Dir(f.Path)
		if strings.HasSuffix(f.Path, "_test.go") && !slices.Contains(whole, name) && hasDir(dir, name) {
			ours = append(ours, name)
		}
	}
	slices.Sort(ours)
	link := "-ldflags=" + linkAnyName
	list := [][]string{
		append(append([]string{"build"}, whole...), "./cmd/utils", "./cmd/geth"),
		append([]string{"vet"}, whole...),
		append([]string{"test", link}, whole...),
	}
	if ours = slices.Compact(ours); len(ours) > 0 {
		list = append(list, append([]string{"test", link, "-run", ownTests}, ours...))
	}
	return list
}

// addTarget has `patchset bases` take a release from now on, unless it does already.
func (r *repo) addTarget(version string, out io.Writer) error {
	list, err := r.targets()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if slices.Contains(list, version) {
		return nil
	}
	f, err := os.OpenFile(r.path("patches", "targets"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, version)
	if err = errors.Join(err, f.Close()); err == nil {
		fmt.Fprintf(out, "patches/targets: %s added\n", version)
	}
	return err
}
