// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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
	quick   bool   // only lay the tree, and vet package rpc, which has most of what is ours
	test    bool   // run the tests of what is touched, and upstream's on the untouched release
	attacks string // slowclient's --only for the command built there; "": none
}

// basesTable applies the patches to every target, builds what they touch and does
// what the options ask for. A target is a release or a directory; of a directory only
// a copy is changed.
func (r *repo) basesTable(targets []string, o basesOptions, out io.Writer) error {
	if len(targets) == 0 {
		var err error
		if targets, err = r.targets(); err != nil {
			return err
		}
	}
	var (
		t      = newTable("base", "target", "applies", "builds", "tests", "attacks", "hunks", "lines", "time")
		failed []string
		notes  strings.Builder
	)
	for _, target := range targets {
		begin := time.Now()
		row, note, err := r.tryTarget(target, o)
		if err != nil {
			failed = append(failed, target)
			fmt.Fprintf(&notes, "\n%s: %v\n", target, err)
		}
		if note != "" {
			fmt.Fprintf(&notes, "\n%s: %s\n", target, note)
		}
		t.row(row.base, row.target, row.applies, row.builds, row.tests, row.attacks, row.hunks, row.lines, time.Since(begin).Round(time.Second))
		fmt.Fprintf(out, "%s: applies %s, builds %s, tests %s, attacks %s\n", row.target, row.applies, row.builds, row.tests, row.attacks)
	}
	fmt.Fprintln(out)
	t.print(out)
	fmt.Fprint(out, notes.String())
	if len(failed) > 0 {
		return fmt.Errorf("not as it should be: %s", strings.Join(failed, ", "))
	}
	return nil
}

type targetRow struct {
	base, target, applies, builds, tests, attacks string
	hunks, lines                                  int
}

func (r *repo) tryTarget(target string, o basesOptions) (row targetRow, note string, err error) {
	row = targetRow{base: "-", target: target, applies: "no", builds: "-", tests: "-", attacks: "-"}
	var (
		dir   string // where the patched tree lies
		stock string // where the untouched one lies
		p     *plan
	)
	if st, statErr := os.Stat(target); statErr == nil && st.IsDir() {
		row.target = filepath.Base(filepath.Clean(target))
		stock = target
		dir = r.path("build", "bases", row.target)
		if err := os.RemoveAll(dir); err != nil {
			return row, "", err
		}
		if err := copyTree(target, dir); err != nil {
			return row, "", err
		}
		c, err := openCheckout(dir)
		if err != nil {
			return row, "", err
		}
		if p, err = r.choose(c.tree.Read, "", false); err != nil {
			return row, "", err
		}
		if err := r.apply(dir, applyOptions{base: p.set.Base}, io.Discard); err != nil {
			return row, "", err
		}
	} else {
		l, err := r.openLaid(target)
		if err != nil {
			return row, "", err
		}
		if stock, _, err = r.upstream(l.version); err != nil {
			return row, "", err
		}
		if err := l.lay("", false, io.Discard); err != nil {
			return row, "", err
		}
		dir = l.dir
		c := reader(func(path string) ([]byte, error) { return os.ReadFile(filepath.Join(stock, filepath.FromSlash(path))) })
		if p, err = r.choose(c, "", false); err != nil {
			return row, "", err
		}
	}
	row.base, row.applies = p.set.Base, "strictly"
	for _, q := range p.set.Patches {
		row.hunks += q.Hunks()
		row.lines += q.Touched()
	}
	if o.quick {
		if text, err := goRun(dir, "vet", "./rpc"); err != nil {
			row.builds = "no"
			return row, "", fmt.Errorf("vet: %s", text)
		}
		row.builds = "rpc"
		return row, "", nil
	}
	packages := []string{"./rpc", "./node", "./eth/filters", "./cmd/utils", "./cmd/geth"}
	packages = slices.DeleteFunc(packages, func(name string) bool {
		_, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name)))
		return err != nil
	})
	if text, err := goRun(dir, append([]string{"build"}, packages...)...); err != nil {
		row.builds = "no"
		return row, "", fmt.Errorf("build: %s", text)
	}
	if text, err := goRun(dir, append([]string{"vet"}, packages[:3]...)...); err != nil {
		row.builds = "yes, vet no"
		return row, "", fmt.Errorf("vet: %s", text)
	}
	row.builds = "yes"
	if o.test {
		if note, err = row.runTests(dir, stock); err != nil {
			return row, "", err
		}
	}
	if o.attacks != "" {
		row.attacks = "held"
		if err := r.attack(dir, row.target, o.attacks); err != nil {
			row.attacks = "no"
			return row, note, err
		}
	}
	return row, note, nil
}

// linkAnyName has the linker take what it refuses now: before v1.14.1 a package reaches
// into the runtime.
const linkAnyName = "-checklinkname=0"

// runTests runs the tests of what is touched. What fails without the patches, too, is
// upstream's affair, and noted.
func (row *targetRow) runTests(dir, stock string) (note string, err error) {
	args := []string{"test", "-ldflags=" + linkAnyName, "./rpc", "./node", "./eth/filters"}
	text, err := goRun(dir, args...)
	if err == nil {
		row.tests = "pass"
		return "", nil
	}
	base, _ := goRun(stock, args...)
	known := failures(base)
	var ours []string
	for _, name := range failures(text) {
		if !slices.Contains(known, name) {
			ours = append(ours, name)
		}
	}
	if len(ours) == 0 && len(failures(text)) > 0 {
		row.tests = "as stock"
		return "fail on stock as well: " + strings.Join(known, ", "), nil
	}
	row.tests = "no"
	return "", fmt.Errorf("tests: %s\n%s", strings.Join(ours, ", "), text)
}

// attack builds the node of a patched tree, bor's or geth's, and has slowclient judge
// it by the cases that only names.
func (r *repo) attack(dir, name, only string) error {
	main, bin := "./cmd/geth", r.path("build", "bin", "geth-guarded-"+name)
	if _, err := os.Stat(filepath.Join(dir, "internal", "cli", "server")); err == nil {
		main, bin = "./cmd/cli", r.path("build", "bin", "bor-guarded-"+name)
	}
	if text, err := goRun(dir, "build", "-ldflags="+linkAnyName, "-o", bin, main); err != nil {
		return fmt.Errorf("build %s: %s", main, text)
	}
	if text, err := goRun(r.root, "run", "./tests/slowclient", "--binary", bin, "--quick", "--only", only); err != nil {
		return fmt.Errorf("attacks: %s", text)
	}
	return nil
}

var failLine = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)

func failures(text string) []string {
	var out []string
	for _, m := range failLine.FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	return out
}

// goRun runs the go command in a tree and returns the end of its output.
func goRun(dir string, args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	err := cmd.Run()
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	lines = slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "go: downloading ") })
	if len(lines) > 60 {
		lines = lines[len(lines)-60:]
	}
	return strings.Join(lines, "\n"), err
}

// copyTree copies the regular files of a checkout, without git's own.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		at := filepath.Join(to, rel)
		switch {
		case e.Name() == ".git" && rel != ".":
			if e.IsDir() {
				return filepath.SkipDir
			}
			return nil
		case e.IsDir():
			return os.MkdirAll(at, 0o755)
		case !e.Type().IsRegular():
			return nil
		}
		data, err := os.ReadFile(name)
		if err == nil {
			err = os.WriteFile(at, data, 0o644)
		}
		if errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("copying %s: %w", rel, err)
		}
		return err
	})
}
