// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"time"
)

// A test that never comes to the place a mutant changes cannot see the mutant. So before
// it searches, the judge runs each test of the package once alone, with nothing taken
// out, and has every switch that is asked say so. What is left to try for a mutant are
// the tests that reach it, the quickest first; how long they take without it bounds how
// long they may with it, so that a test which hangs for want of the hook costs seconds.
//
// Of some 400 tests of package rpc a switch is reached by 3 to 60 for most; those in the
// way of every call, by 200. Asking costs one run of the package's tests.

// reachName is the environment variable that makes switches say that they are asked.
const reachName = "RPCGUARD_MUTANT_REACH"

// everyConfig stands for all mutants of the configuration: they are switched in one place.
const everyConfig = "config"

// slowTest is what a test may take to be tried together with others.
const slowTest = 300 * time.Millisecond

// timedTest is a test and what it takes with nothing taken out.
type timedTest struct {
	name string
	took time.Duration
}

// reach says which tests come to which mutant, in the order they should be tried.
type reach map[string][]timedTest

var reachedRE = regexp.MustCompile(`(?m)^reached: (.+)$`)

// reached returns the names of the mutants that a test's output says it came to.
func reached(out string) (names []string) {
	for _, m := range reachedRE.FindAllStringSubmatch(out, -1) {
		names = append(names, m[1])
	}
	return names
}

// reachOf finds what the tests of a package reach. Tests that are red are left out.
func reachOf(t *tree, pkg string, tests []string) (reach, error) {
	os.Setenv(reachName, "1")
	defer os.Unsetenv(reachName)
	r, begun := make(reach), time.Now()
	var red []string
	for _, name := range tests {
		at := time.Now()
		out, err := t.test(pkg, "", anchored(name), "60s")
		if err != nil {
			if t.compiled[pkg] == "" {
				return nil, err
			}
			red = append(red, name)
			continue
		}
		for _, m := range reached(out) {
			r[m] = append(r[m], timedTest{name, time.Since(at)})
		}
	}
	for _, ts := range r {
		slices.SortStableFunc(ts, func(a, b timedTest) int { return cmp.Compare(a.took, b.took) })
	}
	fmt.Printf("# %s: what %d tests reach: %.0f s; red by themselves, so left out: %v\n", pkg, len(tests), time.Since(begun).Seconds(), red)
	return r, nil
}

// of returns the tests that come to a mutant, in batches to be run by one process each:
// quick ones whose names point at it, other quick ones, and the rest one by one.
func (r reach) of(m *mutant) (batches [][]timedTest) {
	key := m.name
	if m.config != "" {
		key = everyConfig
	}
	likely, _ := byName(m.name, namesOf(r[key]))
	var near, far []timedTest
	var slow [][]timedTest
	for _, t := range r[key] {
		switch {
		case t.took > slowTest:
			slow = append(slow, []timedTest{t})
		case slices.Contains(likely, t.name):
			near = append(near, t)
		default:
			far = append(far, t)
		}
	}
	return append([][]timedTest{near, far}, slow...)
}

func namesOf(ts []timedTest) (names []string) {
	for _, t := range ts {
		names = append(names, t.name)
	}
	return names
}

// patience is how long tests may take with a mutant before they count as hung.
func patience(ts []timedTest) time.Duration {
	d := 5 * time.Second
	for _, t := range ts {
		d += 4 * t.took
	}
	return d
}
