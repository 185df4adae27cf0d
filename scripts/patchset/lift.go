// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"rpcguard/scripts/patchset/internal/diff"
	"rpcguard/scripts/patchset/internal/tree"
)

// Lifting moves the pin to another release. Each hunk is placed on the old and
// on the new one, and what became of it is told. If all have a place, the pin
// moves, patches/ is written anew and the checks run. If not, the patches are
// written without the hunks that have none, the new release is laid under
// build/fork, and those hunks are made there by hand and given back to their
// patches with refresh; --continue then looks whether every one is back.

// liftState is kept in build/lift while a lift waits for hands.
type liftState struct {
	From, To string
	Lost     []lostHunk
	Series   string // the order file as it was
}

type lostHunk struct {
	Patch, Path, Decl string
	Hunks             int // that the patch had in this file
}

func (r *repo) liftDir(parts ...string) string {
	return r.path(append([]string{"build", "lift"}, parts...)...)
}

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
	fmt.Fprintf(out, "lift from %s to %s, base %s\n", from, to, p.set.Base)
	if err := printFates(fates, trees[0].Read, from, to, history, out); err != nil {
		return err
	}
	lost := slices.DeleteFunc(slices.Clone(fates), func(f *fate) bool { return f.miss == nil })
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
			if err := l.check(out); err != nil {
				return err
			}
		}
		return r.addTarget(to, out)
	}
	if p.set.Base != mainBase {
		return fmt.Errorf("the pinned release is served by base %s; only the main base is lifted", p.set.Base)
	}
	state := liftState{From: from, To: to}
	for _, f := range lost {
		n := 0
		for _, q := range p.set.Patches {
			if q.Name == f.patch {
				n = len(q.File(f.path).Hunks)
			}
		}
		state.Lost = append(state.Lost, lostHunk{f.patch, f.path, f.hunk.Decl, n})
	}
	if err := r.saveLift(&state); err != nil {
		return err
	}
	if err := r.movePin(to); err != nil {
		return errors.Join(err, r.abortLift(io.Discard))
	}
	if len(lost) == 0 {
		return r.finishLift(&state, o.test, out)
	}
	if err := r.writePartial(&state, partial); err != nil {
		return errors.Join(err, r.abortLift(io.Discard))
	}
	l, err := r.openLaid("")
	if err != nil {
		return err
	}
	if err := l.lay(mainBase, false, out); err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "stopped: %d hunks have no place on %s. %s is laid without them; for each, edit the file there and give it back:\n", len(lost), to, l.rel())
	for _, h := range state.Lost {
		fmt.Fprintf(&b, "  %s %s: patchset refresh --into %s %s\n", h.Path, h.Decl, h.Patch, h.Path)
	}
	b.WriteString("then `patchset lift --continue`; `patchset lift --abort` takes the lift back")
	return errors.New(b.String())
}

// saveLift keeps what an abort has to put back.
func (r *repo) saveLift(s *liftState) error {
	if err := os.RemoveAll(r.liftDir()); err != nil {
		return err
	}
	if err := os.MkdirAll(r.liftDir("saved"), 0o755); err != nil {
		return err
	}
	series, err := os.ReadFile(r.path("patches", "series"))
	if err != nil {
		return err
	}
	s.Series = string(series)
	names := []string{"go.mod", "go.sum", "patches/series"}
	list, err := filepath.Glob(r.path("patches", "*.patch"))
	if err != nil {
		return err
	}
	for _, name := range list {
		names = append(names, "patches/"+filepath.Base(name))
	}
	for _, name := range names {
		data, err := os.ReadFile(r.path(filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		if err := os.WriteFile(r.liftDir("saved", strings.ReplaceAll(name, "/", "+")), data, 0o644); err != nil {
			return err
		}
	}
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(r.liftDir("state"), data, 0o644)
}

// abortLift puts go.mod, go.sum and patches/ back.
func (r *repo) abortLift(out io.Writer) error {
	if _, err := os.Stat(r.liftDir("state")); err != nil {
		return errors.New("no lift is under way")
	}
	entries, err := os.ReadDir(r.liftDir("saved"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		data, err := os.ReadFile(r.liftDir("saved", e.Name()))
		if err != nil {
			return err
		}
		if err := os.WriteFile(r.path(filepath.FromSlash(strings.ReplaceAll(e.Name(), "+", "/"))), data, 0o644); err != nil {
			return err
		}
	}
	fmt.Fprintln(out, "go.mod, go.sum and patches/ are as before the lift; `patchset fork --force` lays the old release again")
	return os.RemoveAll(r.liftDir())
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

// writePartial writes the patches without the hunks that were lost. A patch that
// has none left waits in build/lift with its header.
func (r *repo) writePartial(s *liftState, patches []*diff.Patch) error {
	var order strings.Builder
	for _, p := range patches {
		name := r.path("patches", p.Name+".patch")
		if len(p.Files) == 0 {
			if err := os.WriteFile(r.liftDir(p.Name+".head"), []byte(p.Head), 0o644); err != nil {
				return err
			}
			if err := os.Remove(name); err != nil {
				return err
			}
			continue
		}
		order.WriteString(p.Name + "\n")
		if err := os.WriteFile(name, p.Format(), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(r.path("patches", "series"), []byte(order.String()), 0o644)
}

// continueLift looks whether every lost hunk is back, and finishes.
func (r *repo) continueLift(test bool, out io.Writer) error {
	data, err := os.ReadFile(r.liftDir("state"))
	if err != nil {
		return errors.New("no lift is under way")
	}
	var s liftState
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	set, err := r.load(mainBase)
	if err != nil {
		return err
	}
	var missing []string
	for _, h := range s.Lost {
		n := 0
		for _, p := range set.Patches {
			if f := p.File(h.Path); p.Name == h.Patch && f != nil {
				n = len(f.Hunks)
			}
		}
		if n < h.Hunks {
			missing = append(missing, fmt.Sprintf("  %s.patch: %s %s: %d hunks in this file, were %d", h.Patch, h.Path, h.Decl, n, h.Hunks))
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("still without their hunks:\n%s\nedit build/fork, then `patchset refresh --into NAME FILE`", strings.Join(slices.Compact(missing), "\n"))
	}
	return r.finishLift(&s, test, out)
}

// finishLift restores the order, writes the patches with the new line numbers
// and runs the checks.
func (r *repo) finishLift(s *liftState, test bool, out io.Writer) error {
	// Patches that came during the lift stay, behind the old order.
	now, err := r.series([]string{r.path("patches")})
	if err != nil {
		return err
	}
	order := s.Series
	for _, name := range now {
		if !slices.Contains(strings.Split(s.Series, "\n"), name) {
			order += name + "\n"
		}
	}
	if err := os.WriteFile(r.path("patches", "series"), []byte(order), 0o644); err != nil {
		return err
	}
	l, err := r.openLaid("")
	if err != nil {
		return err
	}
	if err := l.lay(mainBase, false, out); err != nil {
		return err
	}
	if err := l.refresh(mainBase, "", nil, true, out); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s is pinned\n", s.To)
	if test {
		if err := l.check(out); err != nil {
			return fmt.Errorf("%w; mend it and run `patchset lift --continue`", err)
		}
	}
	return os.RemoveAll(r.liftDir())
}

// check builds and tests what the patches touch.
func (l *laid) check(out io.Writer) error {
	link := "-ldflags=" + linkAnyName
	for _, args := range [][]string{
		{"build", "./rpc", "./node", "./eth/filters", "./cmd/utils", "./cmd/geth"},
		{"vet", "./rpc", "./node", "./eth/filters"},
		{"test", link, "./rpc", "./node", "./eth/filters"},
	} {
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
