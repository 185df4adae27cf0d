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

// A second run adds to the first and tries again only what was not good.
func TestBasesResume(t *testing.T) {
	w := newWorld(t)
	r, err := findRepo()
	if err != nil {
		t.Fatal(err)
	}
	good := &targetRow{Target: "v1.0.0", Base: "geth", Applies: "strictly", Builds: "cmd/geth", Packages: []packageRow{{Package: "./rpc", OK: true}}, Tried: 3, Broken: []string{"a-case: late"}}
	if err := r.writeKept(map[string]*targetRow{"v1.0.0": good}); err != nil {
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
