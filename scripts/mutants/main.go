// SPDX-License-Identifier: LGPL-3.0-or-later

// Command mutants takes the protections out one at a time and wants to see red.
//
//	go run ./scripts/mutants                     # all
//	go run ./scripts/mutants --only body,http    # by part of the name
//	go run ./scripts/mutants --quick             # those that a unit test catches within a second
//	go run ./scripts/mutants --no-suite          # start no nodes
//	go run ./scripts/mutants --list
//	go run ./scripts/mutants --record            # note the tests found in pins.txt
//
// # Model
//
// A mutant is the patched tree without one thing: a hook, that is one hunk of
// patches/*.patch, or a limit. Where it can be, the thing is put behind a switch
// that the environment variable RPCGUARD_MUTANT turns: all such mutants together are
// one tree, so each package is compiled and linked once for all of them, and a
// mutant costs no more than the test that catches it. A hook that renames a function
// is switched in our wrapper of it, which then calls upstream's at once; added lines
// and changed ones get an if around them. What cannot be switched, fields mostly, is
// reverted in a tree of its own: the compiler catches that, or the tests do.
//
// The trees are overlays of go's -overlay over build/fork: no file is changed.
//
// Each mutant is tried by what is cheapest first: the test that caught it before
// (pins.txt), the tests of ours that come to its switch (see reach.go), and, for what only a whole node can show, the named
// cases of tests/slowclient, against one binary with all the switches. A test counts
// only if it is green with nothing switched.
//
// # In numbers
//
// About 130 mutants; one compilation of some ten packages. On two processors all of
// them take a few minutes, and --quick under three.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// options of a run.
type options struct {
	only, skip             string
	list, quick, record    bool
	suite                  bool
	pinsFile, tree, binary string
}

func main() {
	var o options
	flag.StringVar(&o.only, "only", "", "only mutants whose name contains one of these, joined by commas")
	flag.StringVar(&o.skip, "skip", "", "not those whose name contains one of these")
	flag.BoolVar(&o.list, "list", false, "list the mutants and end")
	flag.BoolVar(&o.quick, "quick", false, "only switched mutants with a pinned test; nothing else is tried")
	flag.BoolVar(&o.record, "record", false, "add the tests found to pins.txt; to find all anew, take the file away first")
	noSuite := flag.Bool("no-suite", false, "do not start nodes: compiler and tests only")
	flag.Parse()
	o.suite = !*noSuite && !o.quick
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	root, err := output(".", nil, "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	if err := os.Chdir(strings.TrimSpace(root)); err != nil {
		return err
	}
	os.Setenv("GOFLAGS", "-trimpath")
	os.Unsetenv(envName)
	if out, err := output(".", nil, "go", "run", "./scripts/patchset", "fork"); err != nil {
		return fmt.Errorf("laying the patched tree: %w\n%s", err, out)
	}
	all, err := collect("patches", "build/fork")
	if err != nil {
		return err
	}
	pins, err := readPins(pinsPath)
	if err != nil {
		return err
	}
	chosen := slices.DeleteFunc(slices.Clone(all), func(m *mutant) bool {
		return !named(m.name, o.only) || o.skip != "" && named(m.name, o.skip) ||
			o.quick && (!m.switched() || pins[m.name].test == "")
	})
	if o.list {
		for _, m := range chosen {
			fmt.Println(m.kind(), m.name)
		}
		return nil
	}
	if len(chosen) == 0 {
		return errors.New("no such mutant")
	}
	t, err := newTree("build/fork", "build/mutant", all)
	if err != nil {
		return err
	}
	j := &judge{tree: t, pins: pins, known: all, opt: o, reach: make(map[string]reach)}
	survivors, err := j.all(chosen)
	if err != nil {
		return err
	}
	if len(survivors) > 0 {
		return fmt.Errorf("survived: %s", strings.Join(survivors, ", "))
	}
	return nil
}

// named reports whether name contains one of the patterns, or there are none.
func named(name, patterns string) bool {
	return patterns == "" || slices.ContainsFunc(strings.Split(patterns, ","), func(p string) bool {
		return strings.Contains(name, p)
	})
}

// output runs a program and returns what it prints.
func output(dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// judge tries mutants.
type judge struct {
	tree  *tree
	pins  map[string]pin
	known []*mutant // all there are
	opt   options

	reach  map[string]reach // package: what its tests come to, once asked
	suite  string           // the suite's program, once built
	binary string           // the node with all switches, once built
}

// verdict says who caught a mutant.
type verdict struct {
	by     string // "compiler", "test", "suite"; empty: it survived
	detail string
}

func (j *judge) all(ms []*mutant) (survivors []string, err error) {
	begun := time.Now()
	if err := j.healthy(ms); err != nil {
		return nil, err
	}
	fmt.Printf("# pinned tests green with nothing taken out: %.0f s\n", time.Since(begun).Seconds())
	by := make(map[string]int)
	for _, m := range ms {
		at := time.Now()
		v, err := j.try(m)
		if err != nil {
			return survivors, fmt.Errorf("%s: %w", m.name, err)
		}
		if v.by == "" {
			survivors = append(survivors, m.name)
			v.by = "SURVIVED"
		}
		by[v.by]++
		if j.opt.record {
			if err := writePins(pinsPath, j.pins, j.known); err != nil {
				return survivors, err
			}
		}
		fmt.Printf("%-48s %-9s %-60.60s %5.1f s\n", m.name, v.by, v.detail, time.Since(at).Seconds())
	}
	fmt.Printf("%d mutants: %d caught by the compiler, %d by tests, %d by the suite; %d survived; %.0f s\n",
		len(ms), by["compiler"], by["test"], by["suite"], len(survivors), time.Since(begun).Seconds())
	return survivors, nil
}

// healthy checks that the pinned tests which are to go red are green before. A search
// checks that of each test it finds.
func (j *judge) healthy(ms []*mutant) error {
	want := make(map[string][]string)
	for _, m := range ms {
		p := j.pins[m.name]
		if m.switched() && p.test != "" && !slices.Contains(want[p.pkg], p.test) {
			want[p.pkg] = append(want[p.pkg], p.test)
		}
	}
	for _, pkg := range packages {
		if err := j.green(pkg, want[pkg]); err != nil {
			return err
		}
	}
	return nil
}

// green checks that tests are green with nothing taken out. What is about time can fail
// on a busy machine: it counts when it repeats.
func (j *judge) green(pkg string, tests []string) error {
	if len(tests) == 0 {
		return nil
	}
	out, err := j.tree.test(pkg, "", anchored(tests...), "5m", "-test.failfast=false")
	if err == nil {
		return nil
	}
	red := failRE.FindAllStringSubmatch(out, -1)
	for _, m := range red {
		if out, err := j.tree.test(pkg, "", anchored(m[1]), "60s"); err != nil {
			return fmt.Errorf("%s is red with nothing taken out: %s\n%s", pkg, m[1], out)
		}
	}
	if len(red) == 0 {
		return fmt.Errorf("%s with nothing taken out: %w\n%s", pkg, err, out)
	}
	return nil
}

func (j *judge) try(m *mutant) (verdict, error) {
	if !m.switched() {
		return j.reverted(m)
	}
	p := j.pins[m.name]
	if p.test != "" {
		if out, err := j.tree.test(p.pkg, m.name, anchored(p.test), "30s"); err != nil {
			return verdict{"test", failed(out)}, nil
		}
		if j.opt.quick {
			return verdict{}, nil
		}
	}
	if p.suite == "" {
		for _, pkg := range m.packages() {
			own, err := ownTests(".", pkg)
			if err != nil {
				return verdict{}, err
			}
			if j.reach[pkg] == nil {
				if j.reach[pkg], err = reachOf(j.tree, pkg, own); err != nil {
					return verdict{}, err
				}
			}
			if v, err := j.search(m, pkg, j.reach[pkg].of(m)); err != nil || v.by != "" {
				return v, err
			}
		}
	}
	return j.bySuite(m)
}

// search runs the tests that reach a mutant until one goes red, and pins it if it does so
// twice and is green without the mutant: a test that fails by itself proves nothing. One
// that takes long, as those do that hang, counts only if there is no other.
func (j *judge) search(m *mutant, pkg string, tests [][]timedTest) (found verdict, err error) {
	slow := 0
	for queue := slices.Clone(tests); len(queue) > 0; {
		batch := queue[0]
		queue = queue[1:]
		if len(batch) == 0 {
			continue
		}
		out, err := j.tree.test(pkg, m.name, anchored(namesOf(batch)...), patience(batch).String())
		if err == nil {
			continue
		}
		test := firstFailed(out)
		i := slices.IndexFunc(batch, func(t timedTest) bool { return t.name == test })
		if half := len(batch) / 2; i < 0 && half > 0 { // the whole program ended, in whichever test
			queue = slices.Insert(queue, 0, batch[:half], batch[half:])
			continue
		}
		i = max(i, 0)
		test = batch[i].name
		limit, begun := patience(batch[i:i+1]).String(), time.Now()
		_, again := j.tree.test(pkg, m.name, anchored(test), limit)
		took := time.Since(begun)
		_, without := j.tree.test(pkg, "", anchored(test), limit)
		if again != nil && without == nil {
			j.pins[m.name] = pin{pkg: pkg, test: test}
			found = verdict{"test", pkg + " " + test}
			if slow++; took < 5*time.Second || slow == 2 {
				return found, nil
			}
		}
		queue = slices.Insert(queue, 0, slices.Delete(slices.Clone(batch), i, i+1))
	}
	return found, nil
}

// reverted tries a mutant that has a tree of its own.
func (j *judge) reverted(m *mutant) (verdict, error) {
	overlay, err := j.tree.revert(m)
	if err != nil {
		return verdict{}, err
	}
	for _, pkgs := range [][]string{{m.pkg}, packages} { // its own first: mostly that is all
		args := append([]string{"build", "-overlay", overlay}, pkgs...)
		if out, err := output(j.tree.fork, nil, "go", args...); err != nil {
			return verdict{"compiler", firstLine(out, "")}, nil
		}
	}
	p := j.pins[m.name]
	for _, pkg := range m.packages() {
		own, err := ownTests(".", pkg)
		if err != nil {
			return verdict{}, err
		}
		if p.test != "" && p.pkg == pkg {
			own = []string{p.test}
		}
		out, err := output(j.tree.fork, nil, "go", "test", "-vet=off", "-failfast", "-timeout", "3m", "-overlay", overlay, "-run", anchored(own...), pkg)
		if err != nil {
			if t := firstFailed(out); t != "" && p.test == "" {
				j.pins[m.name] = pin{pkg: pkg, test: t}
			}
			return verdict{"test", pkg + " " + failed(out)}, nil
		}
	}
	return verdict{}, nil
}

// bySuite runs the suite's cases that are about the mutant.
func (j *judge) bySuite(m *mutant) (verdict, error) {
	cases := m.cases
	if p := j.pins[m.name]; p.suite != "" {
		cases = p.suite
	}
	if !j.opt.suite || cases == "" {
		return verdict{}, nil
	}
	if j.binary == "" {
		suite, err := filepath.Abs("build/bin/slowclient")
		if err != nil {
			return verdict{}, err
		}
		if out, err := output(".", nil, "go", "build", "-o", suite, "./tests/slowclient"); err != nil {
			return verdict{}, fmt.Errorf("building the suite: %w\n%s", err, out)
		}
		binary, err := filepath.Abs("build/bin/geth-mutant")
		if err != nil {
			return verdict{}, err
		}
		if out, err := output(j.tree.fork, nil, "go", "build", "-overlay", j.tree.overlay, "-o", binary, "./cmd/geth"); err != nil {
			return verdict{}, fmt.Errorf("building the node: %w\n%s", err, out)
		}
		j.suite, j.binary = suite, binary
	}
	for _, c := range strings.Split(cases, ",") {
		out, err := output(".", []string{envName + "=" + m.name}, j.suite, "--binary", j.binary, "--quick", "--retries", "0", "--only", c)
		if err != nil && strings.Contains(out, "\nbroken ") {
			j.pins[m.name] = pin{suite: c}
			return verdict{"suite", firstLine(out, "broken ")}, nil
		}
	}
	return verdict{}, nil
}
