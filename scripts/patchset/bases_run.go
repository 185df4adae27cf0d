// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"bytes"
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
)

// linkAnyName has the linker take what it refuses now: before v1.14.1 a package reaches
// into the runtime.
const linkAnyName = "-checklinkname=0"

func hasDir(dir, name string) bool {
	st, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name)))
	return err == nil && st.IsDir()
}

// buildNode builds the node of a patched tree, bor's or geth's, and vets what has hooks.
func (r *repo) buildNode(dir string, t target, row *targetRow) (bin string, err error) {
	main, name := "./cmd/geth", "geth"
	if hasDir(dir, "internal/cli/server") {
		main, name = "./cmd/cli", "bor"
	}
	bin = r.path("build", "bin", name+"-guarded-"+t.file)
	if text, err := goRun(dir, "build", "-ldflags="+linkAnyName, "-o", bin, main); err != nil {
		return "", fmt.Errorf("build %s: %s", main, text)
	}
	if text, err := goRun(dir, "vet", "./rpc", "./node", "./eth/filters"); err != nil {
		return "", fmt.Errorf("vet: %s", text)
	}
	row.Builds = strings.TrimPrefix(main, "./")
	return bin, nil
}

// ownTests are the names of tests of ours, for packages whose own take too long or
// need data that only a release's repository has.
const ownTests = "Guard|HookReached"

// runTests runs the tests of what is touched, a package after the other: whole in those
// that have most hooks, ours in the others.
func (row *targetRow) runTests(dir, stock string, s *set, resume bool, out io.Writer) error {
	packages := []packageRow{{Package: "./rpc"}, {Package: "./node"}, {Package: "./eth/filters"}}
	if hasDir(dir, "internal/cli/server") {
		packages = append(packages, packageRow{Package: "./internal/cli/server"})
	}
	for _, name := range []string{"graphql", "eth/tracers", "internal/ethapi"} {
		if slices.ContainsFunc(s.Own, func(o ownFile) bool {
			return strings.HasPrefix(o.Path, name+"/") && strings.HasSuffix(o.Path, "_test.go")
		}) {
			suffix := ""
			if name == "eth/tracers" {
				suffix = "/..."
			}
			packages = append(packages, packageRow{Package: "./" + name + suffix, Own: true})
		}
	}
	had := row.Packages
	row.Packages = nil
	var bad []error
	for _, p := range packages {
		if i := slices.IndexFunc(had, func(q packageRow) bool { return q.Package == p.Package && q.OK }); resume && i >= 0 {
			row.Packages = append(row.Packages, had[i])
			continue
		}
		bad = append(bad, p.run(dir, stock))
		row.Packages = append(row.Packages, p)
		fmt.Fprintf(out, "%s: tests %s\n", row.Target, (&targetRow{Packages: []packageRow{p}}).tests())
	}
	return errors.Join(bad...)
}

// run runs one package's tests. What fails is run by itself once more; what fails
// again is run without the patches, and is upstream's affair if it fails there. A run
// that did not come to its end (a panic, a time-out, a package that does not build)
// tells nothing of the tests that it did not reach: it is run whole once more, and then
// only upstream's own failures are let pass.
func (p *packageRow) run(dir, stock string) error {
	args := []string{"test", "-ldflags=" + linkAnyName}
	if p.Own {
		args = append(args, "-run", ownTests)
	}
	lines, err := goLines(dir, append(args, p.Package)...)
	if p.OK = err == nil; p.OK {
		return nil
	}
	cut := !ended(lines)
	if cut {
		again, err := goLines(dir, append(args, "-count=1", p.Package)...)
		if p.OK = err == nil; p.OK {
			p.Once = []string{"the whole run"}
			return nil
		}
		if !ended(again) {
			p.Failed = []string{"to run to its end"}
			return fmt.Errorf("tests of %s do not run to their end: %s", p.Package, strings.Join(again[max(0, len(again)-60):], "\n"))
		}
		lines = again
	}
	text := strings.Join(lines[max(0, len(lines)-60):], "\n")
	names := failures(lines)
	alone := func(dir string, names []string) (lines []string, err error) {
		return goLines(dir, "test", "-ldflags="+linkAnyName, "-count=1", "-run", "^("+strings.Join(names, "|")+")$", p.Package)
	}
	again := names
	if !cut {
		// Of a run that was cut off in turn nobody knows what would have passed.
		if lines, err := alone(dir, names); err == nil || ended(lines) {
			again = failures(lines)
		}
	}
	var known []string
	if len(again) > 0 {
		// Upstream's is what is seen to fail there, and nothing that merely did not run.
		lines, _ := alone(stock, again)
		known = failures(lines)
	}
	for _, name := range names {
		switch {
		case !slices.Contains(again, name):
			p.Once = append(p.Once, name)
		case slices.Contains(known, name):
			p.Stock = append(p.Stock, name)
		default:
			p.Failed = append(p.Failed, name)
		}
	}
	if p.OK = len(p.Failed) == 0; p.OK {
		if cut {
			p.Once = []string{"the whole run"}
		}
		return nil
	}
	return fmt.Errorf("tests of %s: %s\n%s", p.Package, strings.Join(p.Failed, ", "), text)
}

// ended reports whether a run that failed did so by nothing but tests that failed: then
// each package that failed told so itself, by a line FAIL, before the go command did.
func ended(lines []string) bool {
	failed := false
	for i, l := range lines {
		if strings.HasPrefix(l, "FAIL\t") {
			failed = true
			if i == 0 || lines[i-1] != "FAIL" {
				return false
			}
		}
		if strings.HasPrefix(l, "FAIL ") { // a package that was not set up
			return false
		}
	}
	return failed && len(failures(lines)) > 0
}

// attack has slowclient judge a node. Its records are kept beside the table: with
// resume those that held are not judged again.
func (r *repo) attack(bin string, t target, row *targetRow, o basesOptions) error {
	records := r.path("build", "attacks-"+t.file+".json")
	args := []string{"run", "./tests/slowclient", "--binary", bin, "--quick", "--records", records}
	if o.attacks != "quick" {
		args = append(args, "--only", o.attacks)
	}
	if o.resume && row.Attacks == o.attacks {
		args = append(args, "--resume")
		if err := dropBroken(records); err != nil {
			return err
		}
	} else if err := os.Remove(records); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err // what it holds was judged of other cases, or of another node
	}
	text, runErr := goRun(r.root, args...)
	row.Tried, row.Broken, row.Attacks = 0, nil, o.attacks
	data, err := os.ReadFile(records)
	if err != nil {
		return fmt.Errorf("attacks: %s", text)
	}
	for line := range strings.Lines(string(data)) {
		rec := readRecord(line)
		switch rec.Verdict {
		case "held":
			row.Tried++
		case "broken":
			row.Tried++
			row.Broken = append(row.Broken, rec.Case+": "+rec.Reason)
		}
	}
	if len(row.Broken) > 0 {
		return fmt.Errorf("attacks: %d broken", len(row.Broken))
	}
	if runErr != nil {
		return fmt.Errorf("attacks: %s", text)
	}
	return nil
}

type record struct{ Case, Verdict, Reason string }

// readRecord reads a line of slowclient's; the last one of a run cut off is none.
func readRecord(line string) (rec record) {
	json.Unmarshal([]byte(line), &rec)
	return rec
}

// dropBroken leaves of a file of records those that slowclient need not make again.
func dropBroken(name string) error {
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var keep strings.Builder
	for line := range strings.Lines(string(data)) {
		if rec := readRecord(line); rec.Case != "" && rec.Verdict != "broken" {
			keep.WriteString(line)
		}
	}
	if err == nil {
		err = os.WriteFile(name, []byte(keep.String()), 0o644)
	}
	return err
}

// failures are the tests, not their parts, that the output tells to have failed.
func failures(lines []string) []string {
	var out []string
	for _, l := range lines {
		if rest, ok := strings.CutPrefix(l, "--- FAIL: "); ok {
			name, _, _ := strings.Cut(rest, " ")
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// goRun runs the go command in a tree and returns the end of its output.
func goRun(dir string, args ...string) (string, error) {
	lines, err := goLines(dir, args...)
	return strings.Join(lines[max(0, len(lines)-60):], "\n"), err
}

// goLines is goRun with all of the output, but for downloads.
func goLines(dir string, args ...string) ([]string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	var b bytes.Buffer
	cmd.Stdout, cmd.Stderr = &b, &b
	err := cmd.Run()
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	return slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "go: downloading ") }), err
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
