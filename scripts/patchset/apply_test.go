// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestApplyAndReverse(t *testing.T) {
	w := newWorld(t)
	for _, git := range []bool{false, true} {
		for _, version := range []string{"v1.0.0", "v1.1.0"} {
			dir := w.checkoutOf(version, git)
			before := snapshot(t, dir)
			w.same(dir, func() {
				out := w.ok("apply", dir, "--check")
				for _, word := range []string{"applies strictly, base geth", "field", "nothing was written"} {
					if !strings.Contains(out, word) {
						t.Errorf("--check does not say %q:\n%s", word, out)
					}
				}
			})
			if out := w.ok("apply", dir); !strings.Contains(out, "applied, base geth, 2 own files") {
				t.Error(out)
			}
			got := snapshot(t, dir)
			if got["rpc/guard.go"] != guardGo || !strings.Contains(got["rpc/server.go"], "\trun bool\n\tguard *Guard\n}") ||
				!strings.Contains(got["rpc/server.go"], "open() {\n\ts.run = true\n\ts.guard.note()\n}") || !strings.Contains(got["rpc/handler.go"], "handleUnguarded") {
				t.Errorf("%s (git %v): wrong contents: %v", version, git, got)
			}
			if _, ok := got["rpc/ignored.tmp"]; ok {
				t.Error("an ignored file was copied")
			}
			if git {
				w.git(dir, "add", ".")
				w.git(dir, "commit", "-q", "-m", "patched")
			}
			w.same(dir, func() {
				if out := w.ok("apply", dir); !strings.Contains(out, "already applied") {
					t.Error(out)
				}
			})
			w.same(dir, func() { w.ok("apply", "--reverse", "--check", dir) })
			w.ok("apply", "--reverse", dir)
			after := snapshot(t, dir)
			for name, text := range before {
				if after[name] != text {
					t.Errorf("%s (git %v): --reverse left %s differently", version, git, name)
				}
			}
			if len(after) != len(before) {
				t.Errorf("--reverse left files behind: %v", after)
			}
			if git {
				w.git(dir, "commit", "-qam", "out")
			}
			if out := w.ok("apply", "--reverse", dir); !strings.Contains(out, "not applied") {
				t.Error(out)
			}
		}
	}
}

// The trap: in v1.2.0 the method is gone and its twin holds the same lines.
// patch(1) puts the hunk there and says nothing.
func TestMisplacedHunkRefused(t *testing.T) {
	w := newWorld(t)
	dir := w.checkoutOf("v1.2.0", false)
	w.same(dir, func() {
		w.fails([]string{"base geth", "open.patch", "rpc/server.go", "@@ -10,2 +10,3 @@ func (*Server) open", "func (*Server) reopen", "+\ts.guard.note()", "nothing was changed"}, "apply", dir)
	})
	w.same(dir, func() { w.fails(nil, "apply", "--check", dir) })
}

func TestFailingHunkLeavesTree(t *testing.T) {
	w := newWorld(t)
	for _, git := range []bool{false, true} {
		dir := w.checkoutOf("v1.0.0", git)
		path := filepath.Join(dir, "rpc", "handler.go")
		write(t, path, strings.Replace(handler, "func handle() int {", "func handle(n int) int {", 1))
		if git {
			w.git(dir, "commit", "-qam", "signature")
		}
		w.same(dir, func() {
			w.fails([]string{"1 of 3 hunks", "call.patch", "rpc/handler.go", "nearest text, line 3", "func handle(n int) int {"}, "apply", dir)
		})
		os.Remove(path)
		if git {
			w.git(dir, "commit", "-qam", "gone")
		}
		w.same(dir, func() { w.fails([]string{"rpc/handler.go", "no such file"}, "apply", dir) })
	}
}

func TestDirtyTreeRefused(t *testing.T) {
	w := newWorld(t)
	dir := w.checkoutOf("v1.0.0", true)
	write(t, filepath.Join(dir, "README"), "edited")
	w.same(dir, func() { w.fails([]string{"not committed", "README"}, "apply", dir) })
	w.git(dir, "add", "README")
	w.same(dir, func() { w.fails([]string{"not committed", "README"}, "apply", dir) })
	w.git(dir, "reset", "-q", "--hard")
	write(t, filepath.Join(dir, "notes.txt"), "an untracked file is nobody's business")
	w.ok("apply", dir)
}

// An apply without --commit leaves a tree that is not clean. It is known for what it is,
// and comes out again; anything beside it is somebody's work.
func TestApplyUncommitted(t *testing.T) {
	w := newWorld(t)
	dir := w.checkoutOf("v1.0.0", true)
	before := snapshot(t, dir)
	w.ok("apply", dir)
	w.same(dir, func() {
		if out := w.ok("apply", dir); !strings.Contains(out, "already applied") {
			t.Error(out)
		}
		w.fails([]string{"not committed", "--reverse"}, "apply", "--commit", dir)
		w.fails([]string{"never committed"}, "apply", "--reverse", "--commit", dir)
	})
	write(t, filepath.Join(dir, "README"), "edited")
	w.same(dir, func() { w.fails([]string{"not committed", "README"}, "apply", "--reverse", dir) })
	write(t, filepath.Join(dir, "README"), before["README"])
	w.git(dir, "add", ".")
	w.ok("apply", "--reverse", dir)
	w.git(dir, "add", ".")
	if out := w.ok("apply", "--reverse", dir); !strings.Contains(out, "not applied") {
		t.Error(out)
	}
	after := snapshot(t, dir)
	for name, text := range before {
		if after[name] != text {
			t.Errorf("--reverse left %s differently", name)
		}
	}
}

func TestForeignFilesRefused(t *testing.T) {
	w := newWorld(t)
	dir := w.checkoutOf("v1.0.0", false)
	write(t, filepath.Join(dir, "rpc", "guard.go"), "package rpc // theirs\n")
	w.same(dir, func() { w.fails([]string{"rpc/guard.go", "not ours"}, "apply", dir) })
}

func TestReverseInFullOrNotAtAll(t *testing.T) {
	w := newWorld(t)
	dir := w.checkoutOf("v1.0.0", false)
	w.ok("apply", dir)
	write(t, filepath.Join(dir, "rpc", "guard.go"), guardGo+"// edited by somebody\n")
	w.same(dir, func() { w.fails([]string{"rpc/guard.go", "nothing was changed"}, "apply", "--reverse", dir) })
	w.same(dir, func() { w.fails([]string{"rpc/guard.go"}, "apply", dir) })
	write(t, filepath.Join(dir, "rpc", "guard.go"), guardGo)
	write(t, filepath.Join(dir, "rpc", "handler.go"), strings.Replace(handler, "func handle() int", "func handleGuarded() int", 1))
	w.same(dir, func() { w.fails([]string{"call.patch"}, "apply", "--reverse", dir) })
}

func TestSymlinksRefused(t *testing.T) {
	w := newWorld(t)
	for _, link := range []string{"rpc", "rpc/server.go"} {
		dir := w.checkoutOf("v1.0.0", false)
		outside := t.TempDir()
		write(t, filepath.Join(outside, "server.go"), servers)
		write(t, filepath.Join(outside, "handler.go"), handler)
		to := outside
		if link != "rpc" {
			to = filepath.Join(outside, "server.go")
		}
		os.RemoveAll(filepath.Join(dir, link))
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
		w.same(outside, func() { w.same(dir, func() { w.fails([]string{"symlink"}, "apply", dir) }) })
	}
}

func TestCRLFCheckoutRefused(t *testing.T) {
	w := newWorld(t)
	dir := w.checkoutOf("v1.0.0", false)
	write(t, filepath.Join(dir, "rpc", "server.go"), strings.ReplaceAll(servers, "\n", "\r\n"))
	w.same(dir, func() { w.fails([]string{"CRLF", "autocrlf"}, "apply", dir) })
}

func TestNotGethRefused(t *testing.T) {
	w := newWorld(t)
	w.fails([]string{"no directory"}, "apply", filepath.Join(t.TempDir(), "none"))
	w.fails([]string{"no go.mod"}, "apply", t.TempDir())
	dir := w.checkoutOf("v1.0.0", false)
	write(t, filepath.Join(dir, "go.mod"), "module example.org/other\n")
	w.fails([]string{"example.org/other"}, "apply", dir)
	w.fails([]string{"no git checkout"}, "apply", "--commit", w.checkoutOf("v1.0.0", false))
	w.fails([]string{"0 arguments", "apply DIR"}, "apply")
}

// A field Files: says with which patch an own file arrives.
func TestFilesField(t *testing.T) {
	w := newWorld(t)
	w.edit("patches/call.patch", "Upstream-Status", "Files: rpc/guard_c*.go\nUpstream-Status")
	dir := w.checkoutOf("v1.0.0", true)
	w.ok("apply", dir, "--commit")
	if files := w.git(dir, "show", "--stat", "--format=", "HEAD"); !strings.Contains(files, "guard_call.go") {
		t.Errorf("guard_call.go did not come with its patch:\n%s", files)
	}
}

// An apply cut off by a kill is put back by the next one; TestCutOffAfterCommits has
// those that are finished, since their commits are in place already.
func TestCutOffApply(t *testing.T) {
	w := newWorld(t)
	for _, git := range []bool{false, true} {
		dir := w.checkoutOf("v1.0.0", git)
		before := snapshot(t, dir)
		c, err := openCheckout(dir)
		if err != nil {
			t.Fatal(err)
		}
		r, _ := findRepo()
		p, err := r.choose(c.tree.Read, "", false)
		if err != nil {
			t.Fatal(err)
		}
		own, err := p.ownChanges(0)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.tree.Write(own, "", nil); err != nil { // and no Done: the process died
			t.Fatal(err)
		}
		w.fails([]string{"cut off", "without --check"}, "apply", "--check", dir)
		if out := w.ok("apply", dir); !strings.Contains(out, "put back") || !strings.Contains(out, "applied, base geth") {
			t.Error(out)
		}
		if git {
			w.git(dir, "add", ".")
			w.git(dir, "commit", "-q", "-m", "patched")
		}
		w.ok("apply", "--reverse", dir)
		if after := snapshot(t, dir); len(after) != len(before) {
			t.Errorf("git %v: left over: %v", git, after)
		}
	}
}

func TestBaseChosen(t *testing.T) {
	w := newWorld(t)
	dir := w.checkoutOf("v0.9.0", false)
	w.same(dir, func() { w.fails([]string{"base geth", "2 of 3 hunks"}, "apply", dir) })
	patches := patchFiles()
	w.write("patches/bases/old/field.patch", strings.ReplaceAll(patches["field"], "run bool", "is bool"))
	w.write("patches/bases/old/open.patch", strings.ReplaceAll(patches["open"], "s.run", "s.is"))
	w.write("patches/bases/old/files/rpc/guard_call.go", callGo+"// as the old base needs it\n")
	w.same(dir, func() { w.fails([]string{"base geth"}, "apply", "--base", "geth", dir) })
	w.fails([]string{"no base", "geth, old"}, "apply", "--base", "new", dir)
	if out := w.ok("apply", dir); !strings.Contains(out, "base old") {
		t.Error(out)
	}
	if got := snapshot(t, dir)["rpc/guard_call.go"]; !strings.Contains(got, "old base") {
		t.Errorf("the variant was not taken: %q", got)
	}
	// Its go.mod says 1.20: our files keep the language they are written in.
	if got := snapshot(t, dir)["rpc/guard.go"]; !strings.HasPrefix(got, "// A licence.\n\n//go:build go1.25\n\npackage rpc") {
		t.Errorf("the language was not raised: %q", got)
	}
	if out := w.ok("apply", dir); !strings.Contains(out, "already applied (base old)") {
		t.Error(out)
	}
	w.ok("apply", "--reverse", dir)

	// Probes decide where the hooks fit both ways.
	dir = w.checkoutOf("v1.1.0", false)
	w.write("patches/base", "lacks rpc/server.go var more\n")
	w.write("patches/bases/more/base", "# moved\nhas rpc/server.go var more\nomit rpc/guard_call.go\n")
	if out := w.ok("apply", dir); !strings.Contains(out, "base more, 1 own files") {
		t.Error(out)
	}
	w.write("patches/bases/more/base", "what\n")
	w.fails([]string{"line 1", "what"}, "apply", "--base", "more", dir)
}

func TestRaise(t *testing.T) {
	for in, want := range map[string]string{
		"// L\n\npackage p\n":                          "// L\n\n//go:build go1.25\n\npackage p\n",
		"// L\npackage p\n":                            "// L\n\n//go:build go1.25\n\npackage p\n",
		"// L\n\n//go:build linux || x\n\npackage p\n": "// L\n\n//go:build (linux || x) && go1.25\n\npackage p\n",
	} {
		got, err := raise("p.go", []byte(in), "go1.25")
		if err != nil || string(got) != want {
			t.Errorf("%q: got %q, want %q, %v", in, got, want, err)
		}
	}
	if _, err := raise("p.go", []byte("package p\n"), "go1.25"); err == nil {
		t.Error("a file without a first comment was taken")
	}
}

func TestStatus(t *testing.T) {
	w := newWorld(t)
	out := w.ok("status")
	for _, word := range []string{"patches         3", "hunks           3 in 2 upstream files", "upstream lines  4 touched", "own files       2 with"} {
		if !strings.Contains(out, word) {
			t.Errorf("status does not say %q:\n%s", word, out)
		}
	}
	w.edit("patches/open.patch", "@@ func (*Server) open\n", "@@\n")
	w.fails([]string{"open.patch", "names no declaration"}, "status")
	var b strings.Builder
	b.WriteString(patchFiles()["call"][:strings.Index(patchFiles()["call"], "@@")])
	for i := range maxHunks - 1 {
		b.WriteString("@@ -" + strings.Repeat("1", 1+i/10) + ",3 +1,3 @@ func handle\n a\n-x\n-y\n+z\n b\n")
	}
	w.write("patches/call.patch", strings.ReplaceAll(b.String(), ",3 +1,3", ",4 +1,3"))
	w.fails([]string{fmt.Sprintf("%d hunks, at most %d", maxHunks+1, maxHunks), fmt.Sprintf("lines touched, at most %d", maxTouched)}, "status")
}

func TestUsage(t *testing.T) {
	w := newWorld(t)
	if out := w.ok(); !strings.Contains(out, "apply DIR") {
		t.Error(out)
	}
	w.fails([]string{"no command"}, "aply")
	w.ok("-C", w.dir, "status")
	t.Chdir(t.TempDir())
	w.fails([]string{"not inside the rpcguard repository"}, "status")
}
