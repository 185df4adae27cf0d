// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestForkLaysAndRepeats(t *testing.T) {
	w := newWorld(t)
	w.ok("fork")
	if log := w.git("build/fork", "log", "--format=%s", "--reverse"); log != "go-ethereum v1.0.0\nrpc: keep a guard\nrpc: tell the guard\nrpc: wrap the handler\n" {
		t.Errorf("commits:\n%s", log)
	}
	if s := w.git("build/fork", "status", "--porcelain"); s != "" {
		t.Errorf("not clean:\n%s", s)
	}
	for name, text := range releases()["v1.0.0"] {
		if strings.HasPrefix(name, "rpc/") {
			continue
		}
		if got := w.read("build/fork/" + name); got != text {
			t.Errorf("%s: %q, upstream has %q", name, got, text)
		}
	}
	if to, err := os.Readlink("build/fork/rpc/guard.go"); err != nil || to != "../../../rpc/guard.go" {
		t.Errorf("link: %q, %v", to, err)
	}
	// Nothing changed: no file is touched, so Go's cache stays warm.
	past := time.Now().Add(-time.Hour).Truncate(time.Second)
	for _, name := range []string{"build/fork/go.mod", "build/fork/rpc/server.go"} {
		if err := os.Chtimes(name, past, past); err != nil {
			t.Fatal(err)
		}
	}
	w.same("build/fork", func() {
		if out := w.ok("fork"); !strings.Contains(out, "unchanged") {
			t.Error(out)
		}
	})
	// A changed patch touches its own files only.
	w.edit("patches/call.patch", "+func handleUnguarded", "+func handleAlone")
	w.ok("fork")
	if !strings.Contains(w.read("build/fork/rpc/handler.go"), "handleAlone") {
		t.Error("the changed patch is not in")
	}
	for _, name := range []string{"build/fork/go.mod", "build/fork/rpc/server.go"} {
		if st, err := os.Stat(name); err != nil || !st.ModTime().Equal(past) {
			t.Errorf("%s was touched", name)
		}
	}
	// New and removed own files.
	w.write("rpc/guard_new.go", "package rpc\n")
	os.Remove("rpc/guard_call.go")
	if out := w.ok("fork"); !strings.Contains(out, "1 links new, 1 stale removed") {
		t.Error(out)
	}
	if _, err := os.Lstat("build/fork/rpc/guard_call.go"); err == nil {
		t.Error("the stale link is there")
	}
	w.fails([]string{"laid by `patchset fork`"}, "apply", "build/fork")
}

func TestForkOtherVersionAndPinMoves(t *testing.T) {
	w := newWorld(t)
	w.ok("fork", "--version", "v1.1.0")
	if !strings.Contains(w.read("build/fork-v1.1.0/rpc/server.go"), "var more") {
		t.Error("not v1.1.0")
	}
	w.fails([]string{"open.patch", "func (*Server) reopen"}, "fork", "--version", "v1.2.0")
	w.fails([]string{"v7.0.0"}, "fork", "--version", "v7.0.0")
	w.ok("fork")
	w.edit("go.mod", "go-ethereum v1.0.0", "go-ethereum v1.1.0")
	w.fails([]string{"go.sum has no checksum", "v1.1.0"}, "fork")
	w.write("go.sum", strings.ReplaceAll(w.read("go.sum"), "v1.0.0", "v1.1.0"))
	w.fails([]string{"checksum"}, "fork")
	w.edit("go.mod", "require", "// require")
	w.fails([]string{"does not require"}, "fork")
}

func TestForkKeepsEdits(t *testing.T) {
	w := newWorld(t)
	w.ok("fork")
	w.edit("build/fork/rpc/server.go", "\ts.guard.note()\n", "\ts.guard.note() // edited\n")
	w.same("build/fork", func() { w.ok("fork") })
	// Another patch changed meanwhile: the edit is carried over.
	w.edit("patches/call.patch", "+func handleUnguarded", "+func handleAlone")
	if out := w.ok("fork"); !strings.Contains(out, "rpc/server.go: edits carried over") {
		t.Error(out)
	}
	if !strings.Contains(w.read("build/fork/rpc/server.go"), "// edited") || !strings.Contains(w.read("build/fork/rpc/handler.go"), "handleAlone") {
		t.Error("the edit or the patch is lost")
	}
	// The patch of the edited lines itself changed: refused, nothing lost.
	w.edit("patches/open.patch", "+\ts.guard.note()", "+\ts.guard.tell()")
	w.same("build/fork", func() { w.fails([]string{"rpc/server.go", "refresh", "--force"}, "fork") })
	w.ok("fork", "--force")
	if got := w.read("build/fork/rpc/server.go"); strings.Contains(got, "edited") || !strings.Contains(got, "tell()") {
		t.Error("--force did not lay the patches' state")
	}
	// A commit on top is an edit as well.
	w.edit("build/fork/rpc/server.go", "tell()", "tell(1)")
	w.git("build/fork", "commit", "-qam", "fixup! rpc: tell the guard")
	w.ok("fork")
	w.edit("patches/open.patch", "+\ts.guard.tell()", "+\ts.guard.say()")
	w.fails([]string{"rpc/server.go"}, "fork")
}

func TestForkRefusesCollision(t *testing.T) {
	w := newWorld(t)
	w.write("rpc/handler.go", "package rpc\n")
	w.fails([]string{"rpc/handler.go", "choose another"}, "fork")
	os.Remove("rpc/handler.go")
	write(t, "build/fork/notes", "x")
	os.RemoveAll("build/fork/.git")
	w.fails([]string{"not laid by this tool"}, "fork")
}

func TestRefreshStable(t *testing.T) {
	w := newWorld(t)
	w.fails([]string{"not laid yet"}, "refresh")
	w.ok("fork")
	for _, args := range [][]string{{"refresh"}, {"refresh", "--all"}} {
		w.same("patches", func() {
			if out := w.ok(args...); !strings.Contains(out, "up to date") {
				t.Error(out)
			}
		})
	}
}

func TestRefreshGivesEditsToOwners(t *testing.T) {
	w := newWorld(t)
	w.ok("fork")
	w.edit("build/fork/rpc/server.go", "\ts.guard.note()\n", "\ts.guard.note()\n\ts.guard.more()\n")
	w.edit("build/fork/rpc/server.go", "\tguard *Guard\n", "\tguard *Guard // rpcguard\n")
	w.edit("build/fork/rpc/handler.go", "handleUnguarded", "handleAlone")
	out := w.ok("refresh")
	for name, line := range map[string]string{"open": "+\ts.guard.more()\n", "field": "+\tguard *Guard // rpcguard\n", "call": "+func handleAlone() int {\n"} {
		if got := w.read("patches/" + name + ".patch"); !strings.Contains(got, line) {
			t.Errorf("%s.patch did not get %q:\n%s\n%s", name, line, got, out)
		}
	}
	if s := w.git("build/fork", "status", "--porcelain"); s != "" {
		t.Errorf("left dirty:\n%s", s)
	}
	w.same("patches", func() { w.ok("refresh") })
	w.same("build/fork", func() {
		if out := w.ok("fork"); !strings.Contains(out, "unchanged") {
			t.Error(out)
		}
	})
	dir := w.checkoutOf("v1.0.0", false)
	w.ok("apply", dir)
	for _, name := range []string{"rpc/server.go", "rpc/handler.go"} {
		if got := snapshot(t, dir)[name]; got != w.read("build/fork/"+name) {
			t.Errorf("%s: applied differs from laid:\n%s", name, got)
		}
	}
}

func TestRefreshRefusesUnowned(t *testing.T) {
	w := newWorld(t)
	w.ok("fork")
	w.edit("build/fork/rpc/handler.go", "\treturn 2\n", "\tguard()\n\treturn 2\n")
	w.edit("build/fork/rpc/server.go", "\ts.guard.note()\n", "\ts.guard.note(1)\n")
	w.same("patches", func() {
		w.fails([]string{"nothing was written", "rpc/handler.go:7", "+\tguard()", "--into NAME"}, "refresh")
	})
	w.ok("refresh", "rpc/server.go")
	if !strings.Contains(w.read("patches/open.patch"), "note(1)") {
		t.Error("the selected file was not refreshed")
	}
	out := w.ok("refresh", "--into", "late", "rpc/handler.go:7")
	if !strings.Contains(out, "late: header has a TODO") {
		t.Error(out)
	}
	if got := w.read("patches/late.patch"); !strings.Contains(got, "@@ func handleUnguarded\n \ttwo()\n+\tguard()\n \treturn 2\n") {
		t.Errorf("late.patch:\n%s", got)
	}
	if got := w.read("patches/series"); got != "# the order\nfield\nopen\ncall\nlate\n" {
		t.Errorf("series:\n%s", got)
	}
	// An existing patch in the middle takes one, too.
	w.edit("build/fork/rpc/server.go", "reopen() {\n", "reopen() {\n\ts.guard.again()\n")
	w.ok("refresh", "--into", "field")
	if !strings.Contains(w.read("patches/field.patch"), "@@ func (*Server) reopen\n") {
		t.Errorf("field.patch:\n%s", w.read("patches/field.patch"))
	}
	w.fails([]string{"no edits"}, "refresh", "rpc/handler.go")
	w.fails([]string{"FILE:LINE"}, "refresh", "rpc/handler.go:x")
	w.fails([]string{"late.patch", "TODO"}, "status")
}

func TestRefreshNeverEmptiesAPatch(t *testing.T) {
	w := newWorld(t)
	w.ok("fork")
	w.edit("build/fork/rpc/handler.go", "handleUnguarded", "handle")
	w.same("patches", func() { w.fails([]string{"call", "left empty", "patches/series"}, "refresh") })
	os.Remove("build/fork/rpc/handler.go")
	w.same("patches", func() { w.fails([]string{"rpc/handler.go", "removed"}, "refresh") })
}

// Two patches own neighbouring lines, and one edit changes both.
func TestRefreshRefusesSharedEdit(t *testing.T) {
	w := newWorld(t)
	w.ok("fork")
	w.edit("build/fork/rpc/server.go", "\ts.guard.note()\n", "\ts.guard.note()\n\ts.guard.late()\n")
	w.ok("refresh", "--into", "late")
	w.edit("build/fork/rpc/server.go", "\ts.guard.note()\n\ts.guard.late()\n", "\ts.guard.both()\n")
	w.same("patches", func() { w.fails([]string{"two patches", "open", "late"}, "refresh") })
}

func TestRefreshTakesBackRegularFile(t *testing.T) {
	w := newWorld(t)
	w.ok("fork")
	at := filepath.Join("build", "fork", "rpc", "guard.go")
	os.Remove(at)
	write(t, at, guardGo+"// edited in place of the link\n")
	w.same("build/fork", func() { w.fails([]string{"rpc/guard.go", "refresh"}, "fork") })
	write(t, "build/fork/rpc/guard_added.go", "package rpc\n")
	out := w.ok("refresh")
	if !strings.Contains(out, "rpc/guard.go: taken back") || !strings.Contains(w.read("rpc/guard.go"), "in place of the link") {
		t.Error(out)
	}
	if w.read("rpc/guard_added.go") != "package rpc\n" {
		t.Error("the new file did not come into the repository")
	}
	for _, name := range []string{"guard.go", "guard_added.go"} {
		if to, err := os.Readlink("build/fork/rpc/" + name); err != nil || to != "../../../rpc/"+name {
			t.Errorf("%s is no link again: %q %v", name, to, err)
		}
	}
	w.ok("fork")
	if s := w.git("build/fork", "status", "--porcelain"); s != "" {
		t.Errorf("not clean:\n%s", s)
	}
	// Both sides changed: which one is right, only a person can say.
	os.Remove(at)
	write(t, at, guardGo+"// one\n")
	past := time.Now().Add(-time.Hour)
	os.Chtimes(at, past, past)
	w.write("rpc/guard.go", guardGo+"// two\n")
	w.fails([]string{"two versions", "rpc/guard.go"}, "refresh")
	w.ok("fork", "--force")
	if !strings.Contains(w.read("rpc/guard.go"), "// two") {
		t.Error("--force touched the repository")
	}
}

func TestRefreshWantsCurrentPatches(t *testing.T) {
	w := newWorld(t)
	w.ok("fork")
	w.edit("patches/call.patch", "+func handleUnguarded", "+func handleAlone")
	w.same("patches", func() { w.fails([]string{"patchset fork"}, "refresh") })
}
