// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Upstream's broken test is noted, one that passes by itself too; only what the patches
// broke is an error.
func TestBasesTellsWhoseFailure(t *testing.T) {
	const head = "package rpc\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nvar _ = os.Getpid\n\n"
	dir, stock := t.TempDir(), t.TempDir()
	lay := func(at, tests string) {
		write(t, filepath.Join(at, "go.mod"), gomod)
		write(t, filepath.Join(at, "rpc", "x_test.go"), head+tests)
	}
	broken := "func TestUpstream(t *testing.T) { t.Fatal() }\n"
	flaky := "func TestFlaky(t *testing.T) {\n\tif _, err := os.Stat(\"ran\"); err != nil {\n\t\tos.WriteFile(\"ran\", nil, 0o600)\n\t\tt.Fatal()\n\t}\n}\n"
	lay(stock, broken)
	lay(dir, broken+flaky)

	row := &targetRow{Target: "v1.0.0"}
	p := packageRow{Package: "./rpc"}
	if err := p.run(dir, stock); err != nil {
		t.Fatal(err)
	}
	row.Packages = []packageRow{p}
	if got, want := row.tests(), "pass: rpc; rpc as stock, where TestUpstream fail; rpc: TestFlaky passed the second time"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	lay(dir, broken+"func TestOurs(t *testing.T) { t.Fatal() }\n")
	p = packageRow{Package: "./rpc"}
	if err := p.run(dir, stock); err == nil || p.OK || strings.Join(p.Failed, " ") != "TestOurs" {
		t.Errorf("a failure of ours is told as %+v, %v", p, err)
	}
	lay(dir, "func TestNothing(t *testing.T) { no() }\n")
	p = packageRow{Package: "./rpc"}
	if err := p.run(dir, stock); err == nil || p.OK {
		t.Errorf("tests that do not compile are told as %+v, %v", p, err)
	}
}

// A run that did not come to its end tells nothing of what it did not reach, whatever else
// failed in it and passes by itself.
func TestBasesRunCutOff(t *testing.T) {
	const head = "package rpc\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nvar _ = os.Getpid\n\n"
	const once = "func first(name string) bool {\n\t_, err := os.Stat(name)\n\tos.WriteFile(name, nil, 0o600)\n\treturn err != nil\n}\n"
	const flaky = "func TestFlaky(t *testing.T) {\n\tif first(\"flaky\") {\n\t\tt.Fatal()\n\t}\n}\n"
	const broken = "func TestUpstream(t *testing.T) { t.Fatal() }\n"
	crash := func(when string) string {
		return "func TestZ(t *testing.T) {\n\tif " + when + " {\n\t\tgo func() { panic(1) }()\n\t\tselect {}\n\t}\n}\n"
	}
	for _, c := range []struct{ name, tests, sub, stock, want string }{
		{"a panic each time", flaky + crash("true"), "", "", "rpc fails: to run to its end"},
		{"a panic once", flaky + crash(`first("crash")`), "", "", "pass: rpc; rpc: the whole run passed the second time"},
		{"a panic once, and upstream's", broken + crash(`first("crash")`), "", broken, "pass: rpc; rpc as stock, where TestUpstream fail; rpc: the whole run passed the second time"},
		{"a panic once, then ours", broken + crash(`first("crash")`), "", "", "rpc fails: TestUpstream"},
		{"a neighbour that does not build", flaky, "package sub\n\nfunc x() { no() }\n", "", "rpc fails: to run to its end"},
		{"stock does not build", broken, "", "func TestUpstream(t *testing.T) { no() }\n", "rpc fails: TestUpstream"},
	} {
		dir, stock := t.TempDir(), t.TempDir()
		for at, tests := range map[string]string{dir: c.tests, stock: c.stock} {
			write(t, filepath.Join(at, "go.mod"), gomod)
			write(t, filepath.Join(at, "rpc", "x_test.go"), head+once+tests)
		}
		if c.sub != "" {
			write(t, filepath.Join(dir, "rpc", "sub", "x_test.go"), c.sub)
		}
		p := packageRow{Package: "./rpc/..."}
		err := p.run(dir, stock)
		if got := (&targetRow{Packages: []packageRow{p}}).tests(); got != c.want || (err == nil) != p.OK {
			t.Errorf("%s: got %q, want %q; %v", c.name, got, c.want, err)
		}
	}
}

// A directory is copied to where another of its name may lie: what would take this
// repository or its build directory away is refused before anything is.
func TestBasesRefusesItself(t *testing.T) {
	w := newWorld(t)
	w.write("build/bases/other/go.mod", gomod)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(w.dir, link); err != nil {
		t.Fatal(err)
	}
	w.same(w.dir, func() {
		for _, arg := range []string{".", "..", "/", link, w.dir} {
			w.fails([]string{"holds this repository", arg}, "bases", arg)
		}
		for _, arg := range []string{"build", "build/bases", "build/bases/other", filepath.Join(link, "build", "bases", "other")} {
			w.fails([]string{"build directory", arg}, "bases", arg)
		}
	})
}

// What has variants on older bases is compiled by --quick, too, where a release has it.
func TestBasesQuick(t *testing.T) {
	w := newWorld(t)
	if out := w.ok("bases", "--quick", "v1.1.0"); !strings.Contains(out, "builds vetted") {
		t.Error(out)
	}
	out := new(strings.Builder)
	if run([]string{"bases", "--quick", "v1.0.0"}, out, out) == 0 || !strings.Contains(out.String(), "./eth/filters: ") || !strings.Contains(out.String(), "undefined: API") {
		t.Errorf("eth/filters does not compile, and bases says\n%s", out)
	}
}

// A row stands for what it was judged by: the directory, the patches, the cases.
func TestBasesRowsAreOfOneState(t *testing.T) {
	w := newWorld(t)
	r, err := findRepo()
	if err != nil {
		t.Fatal(err)
	}
	one, two := w.checkoutOf("v1.0.0", false), w.checkoutOf("v1.0.0", false)
	kept := make(keptRows)
	row := func(arg string) (target, *targetRow) {
		tg, err := r.resolve(arg)
		if err != nil {
			t.Fatal(err)
		}
		state, err := r.state(tg)
		if err != nil {
			t.Fatal(err)
		}
		return tg, &targetRow{Target: tg.name, Path: tg.path, State: state, Attacks: "a", Base: "geth", Applies: "strictly", Builds: "cmd/geth", Tried: 1}
	}
	done := func(arg, cases string) bool {
		t.Helper()
		tg, now := row(arg)
		had := kept.row(tg)
		return had != nil && had.judged(tg, now.State) && had.complete(basesOptions{attacks: cases})
	}
	t1, row1 := row(one)
	kept.put(t1, row1)
	if t2, _ := row(two); t1.name != t2.name || t1.file == t2.file {
		t.Errorf("%+v and %+v", t1, t2)
	}
	if !done(one, "a") || done(one, "a,b") || done(two, "a") {
		t.Error("a row stands for other cases, or for another directory of its name")
	}
	write(t, filepath.Join(one, "rpc", "new.go"), "package rpc\n")
	if done(one, "a") {
		t.Error("a row stands for a directory that changed")
	}
	os.Remove(filepath.Join(one, "rpc", "new.go"))
	w.write("patches/targets", "v1.0.0\n")
	if !done(one, "a") {
		t.Error("a list of targets makes another state")
	}
	for _, name := range []string{"patches/call.patch", "rpc/guard.go"} {
		text := w.read(name)
		w.write(name, text+"\n")
		if done(one, "a") {
			t.Errorf("a row stands for another %s", name)
		}
		w.write(name, text)
	}

	// What an older version kept is shown, and not relied on.
	t3, _ := row("v1.0.0")
	w.write("build/bases.json", `{"v1.0.0": {"Target": "v1.0.0", "Base": "geth", "Applies": "strictly", "Builds": "cmd/geth", "Hunks": 3, "Lines": 4, "Tried": 29, "Seconds": 3}}`)
	if kept, err = r.readKept(); err != nil || kept.row(t3) == nil || done("v1.0.0", "") {
		t.Errorf("an old row is taken as %+v, %v", kept.row(t3), err)
	}
	for _, args := range [][]string{{"bases", "--markdown"}, {"bases", "--markdown", "v1.0.0"}} {
		if out := w.ok(args...); !strings.Contains(out, "| geth | v1.0.0 | strictly | 3 | 4 | cmd/geth | - | 29 of 29 |") || !strings.Contains(out, "v1.0.0: kept by an older version") {
			t.Error(out)
		}
	}
	w.fails([]string{"holds none"}, "bases", "--markdown", "v1.1.0")
}

// A second run adds to the first and tries again only what was not good.
func TestBasesResume(t *testing.T) {
	w := newWorld(t)
	r, err := findRepo()
	if err != nil {
		t.Fatal(err)
	}
	good := &targetRow{Target: "v1.0.0", Base: "geth", Applies: "strictly", Builds: "cmd/geth", Packages: []packageRow{{Package: "./rpc", OK: true}}, Tried: 3, Broken: []string{"a-case: late"}}
	good.Path = good.Target
	if good.State, err = r.state(target{path: good.Path}); err != nil {
		t.Fatal(err)
	}
	if err := r.writeKept(keptRows{"v1.0.0": good}); err != nil {
		t.Fatal(err)
	}
	out := new(strings.Builder)
	if err := r.basesTable([]string{"v1.0.0", "v1.2.0"}, basesOptions{test: true, resume: true, markdown: true}, out); err == nil {
		t.Error("a target that does not fit is no error")
	}
	for _, word := range []string{"v1.0.0: as before", "| geth | v1.0.0 | strictly | 0 | 0 | cmd/geth | pass: rpc | 2 of 3; not a-case |", "v1.2.0: applies no"} {
		if !strings.Contains(out.String(), word) {
			t.Errorf("it does not say %q:\n%s", word, out)
		}
	}
	if kept, err := r.readKept(); err != nil || kept["v1.2.0"] == nil || kept["v1.2.0"].Error == "" {
		t.Errorf("what failed was not kept: %v", err)
	}
	if err := r.basesTable([]string{"v1.0.0"}, basesOptions{test: true}, io.Discard); err == nil {
		t.Error("without resume it was not tried anew")
	}

	records := filepath.Join(w.dir, "records")
	write(t, records, `{"case":"a","verdict":"held"}`+"\n"+`{"case":"b","verdict":"broken"}`+"\n"+`{"case":"c","verd`)
	if err := dropBroken(records); err != nil {
		t.Fatal(err)
	}
	if data, _ := os.ReadFile(records); string(data) != `{"case":"a","verdict":"held"}`+"\n" {
		t.Errorf("kept: %q", data)
	}
}
