// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
)

// pinsPath is the table of which test caught which mutant. It only saves time: a
// mutant that is not in it, or whose test stays green, is tried by all tests.
const pinsPath = "scripts/mutants/pins.txt"

// pin is what caught a mutant: a test of a package, or a case of the suite.
type pin struct {
	pkg, test string
	suite     string
}

// readPins reads lines of "MUTANT<tab>PACKAGE TEST" or "MUTANT<tab>suite CASE".
func readPins(path string) (map[string]pin, error) {
	pins := make(map[string]pin)
	f, err := os.Open(path)
	if os.IsNotExist(err) {
		return pins, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	for n := 1; sc.Scan(); n++ {
		line := sc.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, what, ok := strings.Cut(line, "\t")
		f := strings.Fields(what)
		if !ok || len(f) != 2 {
			return nil, fmt.Errorf("%s:%d: %q is not a mutant and what caught it", path, n, line)
		}
		if f[0] == "suite" {
			pins[name] = pin{suite: f[1]}
		} else {
			pins[name] = pin{pkg: f[0], test: f[1]}
		}
	}
	return pins, sc.Err()
}

// writePins writes those of the mutants that there are.
func writePins(path string, pins map[string]pin, all []*mutant) error {
	var lines []string
	for _, m := range all {
		switch p := pins[m.name]; {
		case p.test != "":
			lines = append(lines, fmt.Sprintf("%s\t%s %s\n", m.name, p.pkg, p.test))
		case p.suite != "":
			lines = append(lines, fmt.Sprintf("%s\tsuite %s\n", m.name, p.suite))
		}
	}
	sort.Strings(lines)
	head := "# Which test caught which mutant: written by `go run ./scripts/mutants --record`.\n"
	return os.WriteFile(path, []byte(head+strings.Join(lines, "")), 0o644)
}

var (
	failRE = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)
	testRE = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
)

// firstFailed returns the name of the first test that failed; where the program was
// ended, by a panic or its time-out, of the one that ran then.
func firstFailed(out string) string {
	if m := failRE.FindStringSubmatch(out); m != nil {
		return m[1]
	}
	if m := regexp.MustCompile(`(?m)^\s+(Test\w+)(?:/\S*)? \(`).FindStringSubmatch(out); m != nil {
		return m[1] // "running tests:" of a time-out
	}
	// A panic: the test is the last frame of ours named so.
	if m := regexp.MustCompile(`\.(Test\w+)(?:\.func|\()`).FindStringSubmatch(out); m != nil {
		return m[1]
	}
	return ""
}

// failed names the tests that went red, or else says what was printed.
func failed(out string) string {
	var names []string
	for _, f := range failRE.FindAllStringSubmatch(out, 3) {
		names = append(names, f[1])
	}
	if len(names) == 0 {
		if t := firstFailed(out); t != "" {
			return t
		}
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

func anchored(tests ...string) string { return "^(" + strings.Join(tests, "|") + ")$" }

// ownTests collects the names of the overlay's tests of a package.
func ownTests(root, pkg string) (names []string, err error) {
	files, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		src, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		for _, m := range testRE.FindAllSubmatch(src, -1) {
			if name := string(m[1]); name != "TestMain" {
				names = append(names, name)
			}
		}
	}
	return names, nil
}

// related are words that tests use for what mutants call otherwise.
var related = map[string]string{
	"admission": "gate exact trap refus", "body": "guard refus", "call": "id ping origin logs", "conn": "conns reset headers h2 shutdown",
	"gate": "trap", "h2": "reset", "reply": "encode history", "stream": "window inflight hangup", "sub": "outbox overflow event connection",
	"ws": "intake scan frame", "delivery": "outbox notif", "governor": "client",
}

var wordRE = regexp.MustCompile(`[A-Z]?[a-z0-9]+`)

// byName splits tests into those whose names have a word of the mutant's in them, the
// likeliest to catch it, and the rest.
func byName(mutant string, tests []string) (likely, rest []string) {
	var words []string
	for _, w := range wordRE.FindAllString(mutant, -1) {
		w = strings.ToLower(w)
		words = append(words, strings.Fields(related[w])...)
		if len(w) > 1 && w != "limit" && w != "hook" && w != "rpc" && w != "go" {
			words = append(words, w)
		}
	}
	for _, t := range tests {
		name := strings.ToLower(strings.TrimPrefix(t, "Test"))
		if slices.ContainsFunc(words, func(w string) bool { return strings.Contains(name, w) }) {
			likely = append(likely, t)
		} else {
			rest = append(rest, t)
		}
	}
	return likely, rest
}
