// SPDX-License-Identifier: LGPL-3.0-or-later

// Command mutants takes the protections out one at a time and wants to see red.
//
// A mutant is the patched tree without one thing: a hook (one hunk of
// patches/*.patch, reversed) or a limit (one field of the configuration, set so
// that it never binds, after it was read and validated). Each is tried by what is
// cheapest first: the compiler, then the tests of the overlay, then, for what only
// a whole node can show, the named cases of tests/slowclient against the mutant's
// own binary. It prints who caught which, and fails if any survives.
//
//	go run ./scripts/mutants                     # all
//	go run ./scripts/mutants --only body,http    # by part of the name
//	go run ./scripts/mutants --no-suite          # compiler and tests only
//	go run ./scripts/mutants --list
//
// The mutants live in build/mutant, a copy of build/fork in which a mutated
// overlay file takes the place of its link.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

type mutant struct {
	name  string
	make  func(dir string) error // applies it to the tree
	cases string                 // of the suite, where the tests may not be enough
}

type verdict struct {
	by     string // "compiler", "test", "suite"; empty: it survived
	detail string
}

func main() {
	only := flag.String("only", "", "only mutants whose name contains one of these, joined by commas")
	list := flag.Bool("list", false, "list the mutants and end")
	noSuite := flag.Bool("no-suite", false, "do not start nodes: compiler and tests only")
	flag.Parse()
	if err := run(*only, *list, !*noSuite); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(only string, list, suite bool) error {
	root, err := output(".", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	if err := os.Chdir(strings.TrimSpace(root)); err != nil {
		return err
	}
	os.Setenv("GOFLAGS", "-trimpath")
	hooks, err := hookMutants("patches")
	if err != nil {
		return err
	}
	all := append(hooks, limitMutants()...)
	if only != "" {
		all = slices.DeleteFunc(all, func(m mutant) bool {
			return !slices.ContainsFunc(strings.Split(only, ","), func(p string) bool { return strings.Contains(m.name, p) })
		})
	}
	if list {
		for _, m := range all {
			fmt.Println(m.name)
		}
		return nil
	}
	if out, err := output(".", "go", "run", "./scripts/patchset", "fork"); err != nil {
		return fmt.Errorf("laying the patched tree: %w\n%s", err, out)
	}
	tests, err := ownTests(".")
	if err != nil {
		return err
	}
	const tree = "build/mutant"
	var survivors []string
	for _, m := range all {
		begun := time.Now()
		if err := refreshTree("build/fork", tree); err != nil {
			return err
		}
		if err := m.make(tree); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		v := try(tree, m, tests, suite)
		if v.by == "" {
			survivors = append(survivors, m.name)
			v.by = "SURVIVED"
		}
		fmt.Printf("%-40s %-9s %-60.60s %4.0f s\n", m.name, v.by, v.detail, time.Since(begun).Seconds())
	}
	fmt.Printf("%d mutants, %d survived\n", len(all), len(survivors))
	if len(survivors) > 0 {
		return fmt.Errorf("survived: %s", strings.Join(survivors, ", "))
	}
	return nil
}

// refreshTree makes tree the same as fork: the first time by copying, later by
// undoing what the mutant before left behind.
func refreshTree(fork, tree string) error {
	if err := os.RemoveAll(tree); err != nil {
		return err
	}
	out, err := output(".", "cp", "-a", fork, tree)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

var packages = []string{"./rpc", "./node", "./eth/filters", "./eth/tracers", "./graphql", "./cmd/utils", "./cmd/geth"}

func try(tree string, m mutant, tests map[string]string, suite bool) verdict {
	if out, err := output(tree, "go", append([]string{"build"}, packages...)...); err != nil {
		return verdict{"compiler", firstLine(out, "")}
	}
	for _, pkg := range packages {
		if tests[pkg] == "" {
			continue
		}
		if out, err := output(tree, "go", "test", "-timeout", "180s", "-run", tests[pkg], pkg); err != nil {
			return verdict{"test", failed(out)}
		}
	}
	if !suite || m.cases == "" {
		return verdict{}
	}
	bin, err := filepath.Abs("build/bin/geth-mutant")
	if err != nil {
		return verdict{}
	}
	if out, err := output(tree, "go", "build", "-o", bin, "./cmd/geth"); err != nil {
		return verdict{"compiler", firstLine(out, "")}
	}
	out, err := output(".", "go", "run", "./tests/slowclient", "--binary", bin, "--quick", "--retries", "0", "--only", m.cases)
	if err != nil && strings.Contains(out, "\nbroken ") {
		return verdict{"suite", firstLine(out, "broken ")}
	}
	return verdict{}
}

var failRE = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// failed names the tests that went red.
func failed(out string) string {
	var names []string
	for _, f := range failRE.FindAllStringSubmatch(out, 3) {
		names = append(names, f[1])
	}
	if len(names) == 0 {
		return firstLine(out, "")
	}
	return strings.Join(names, ", ")
}

// firstLine returns the first line with the prefix that says something.
func firstLine(out, prefix string) string {
	for _, l := range strings.Split(out, "\n") {
		if l = strings.TrimSpace(l); l != "" && !strings.HasPrefix(l, "#") && strings.HasPrefix(l, prefix) {
			return strings.Join(strings.Fields(l), " ")
		}
	}
	return ""
}

var testRE = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// ownTests collects the names of the overlay's tests, a pattern a package.
func ownTests(root string) (map[string]string, error) {
	tests := make(map[string]string)
	for _, pkg := range packages {
		files, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
		if err != nil {
			return nil, err
		}
		var names []string
		for _, f := range files {
			src, err := os.ReadFile(f)
			if err != nil {
				return nil, err
			}
			for _, m := range testRE.FindAllSubmatch(src, -1) {
				if string(m[1]) != "TestMain" {
					names = append(names, string(m[1]))
				}
			}
		}
		if len(names) > 0 {
			tests[pkg] = "^(" + strings.Join(names, "|") + ")$"
		}
	}
	return tests, nil
}

func output(dir, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}
