// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"strings"
	"testing"

	"rpcguard/scripts/patchset/internal/tree"
)

// oldBase adds a base whose variants are in use on v0.9.0 and not on v1.1.0.
func (w *world) oldBase() {
	head := func(why string) string {
		return why + "\n---\ndiff --git a/rpc/server.go b/rpc/server.go\n--- a/rpc/server.go\n+++ b/rpc/server.go\n"
	}
	w.write("patches/bases/old/field.patch", head("Another field.")+"@@ -5,2 +5,3 @@ type Server\n \tis bool\n+\tguard *Guard\n }\n")
	w.write("patches/bases/old/open.patch", head("Another name.")+"@@ -10,2 +10,3 @@ func (*Server) open\n \ts.is = true\n+\ts.guard.note()\n }\n")
	w.write("patches/bases/old/base", "# any tree\n")
}

// On a release that has no use for a base's variant, the variant stays what it is.
func TestRefreshKeepsVariantsNotInUse(t *testing.T) {
	w := newWorld(t)
	w.oldBase()
	on := func(args ...string) []string { return append(args, "--version", "v1.1.0", "--base", "old") }
	w.ok(on("fork")...)
	for _, args := range [][]string{on("refresh"), on("refresh", "--all")} {
		w.same("patches", func() {
			if out := w.ok(args...); !strings.Contains(out, "up to date") {
				t.Errorf("%v: %s", args, out)
			}
		})
	}
	w.ok("fork", "--version", "v0.9.0", "--base", "old")

	// An edit of another hook becomes a variant, that of another file is left alone.
	field, open := w.read("patches/bases/old/field.patch"), w.read("patches/bases/old/open.patch")
	w.edit("build/fork-v1.1.0/rpc/handler.go", "handleUnguarded", "handleAlone")
	w.ok(on("refresh")...)
	if got := w.read("patches/bases/old/call.patch"); !strings.Contains(got, "+func handleAlone() int {") {
		t.Errorf("call.patch of the base:\n%s", got)
	}
	// One more hook of the same file and patch stands beside the variant.
	w.edit("build/fork-v1.1.0/rpc/server.go", "reopen() {\n", "reopen() {\n\ts.guard.again()\n")
	w.ok(on("refresh", "--into", "field")...)
	got := w.read("patches/bases/old/field.patch")
	if !strings.Contains(got, "@@ func (*Server) reopen\n") || !strings.Contains(got, "@@ type Server\n \tis bool\n") || strings.Contains(got, "run bool") {
		t.Errorf("field.patch of the base:\n%s", got)
	}
	w.write("patches/bases/old/field.patch", field)
	w.ok(append(on("fork"), "--force")...)

	// The edit of a hook whose variant is for other releases: only a person knows
	// what it is there.
	w.edit("build/fork-v1.1.0/rpc/server.go", "note()", "tell()")
	w.same("patches", func() {
		w.fails([]string{"nothing was written", "open.patch", "func (*Server) open", "by hand"}, on("refresh")...)
	})
	if got := w.read("patches/bases/old/open.patch"); got != open {
		t.Errorf("open.patch of the base:\n%s", got)
	}
}

// A base's variant that is in use takes the edit, and new line numbers alone are
// no reason for one.
func TestRefreshWritesVariantInUse(t *testing.T) {
	w := newWorld(t)
	w.oldBase()
	w.edit("patches/call.patch", "-3,3 +3,3", "-13,3 +13,3")
	on := func(args ...string) []string { return append(args, "--version", "v0.9.0", "--base", "old") }
	w.ok(on("fork")...)
	w.same("patches", func() { w.ok(on("refresh", "--all")...) })
	w.edit("build/fork-v0.9.0/rpc/server.go", "note()", "tell()")
	w.ok(on("refresh")...)
	if got := w.read("patches/bases/old/open.patch"); !strings.Contains(got, " \ts.is = true\n+\ts.guard.tell()\n") {
		t.Errorf("open.patch of the base:\n%s", got)
	}
	w.ok(on("fork")...)
}

// What a refresh that was killed between two patches left is put back by the next
// command, whatever that is.
func TestCutRefreshIsPutBack(t *testing.T) {
	for _, next := range [][]string{{"status"}, {"lift", "--to", "v1.1.0", "--no-test"}} {
		w := newWorld(t)
		w.commitAll()
		w.ok("fork")
		at, err := tree.Open(w.dir, patchesJournal)
		if err != nil {
			t.Fatal(err)
		}
		field := w.read("patches/field.patch")
		if err := at.Write([]tree.Change{{Path: "patches/field.patch", Data: []byte("new")}}, "", nil); err != nil {
			t.Fatal(err)
		}
		if out := w.ok(next...); !strings.Contains(out, "cut off") || w.read("patches/field.patch") != field && next[0] != "lift" {
			t.Errorf("%v: %s\n%s", next, out, w.read("patches/field.patch"))
		}
		if out := w.ok("status"); strings.Contains(out, "cut off") {
			t.Errorf("told twice: %s", out)
		}
	}
}
