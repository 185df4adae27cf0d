// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"os"
	"strings"
	"testing"
)

// cutFork has `patchset fork` end as a kill would have it: the laid files are new,
// the edits not yet written on top of them.
func (w *world) cutFork() {
	w.t.Helper()
	w.ok("fork")
	w.edit("build/fork/rpc/server.go", "\ts.guard.note()\n", "\ts.guard.note() // edited\n")
	w.edit("patches/call.patch", "+func handleUnguarded", "+func handleAlone")
	lock := "build/fork/.git/refs/rpcguard/head.lock" // git waits for nobody here
	write(w.t, lock, "")
	w.fails([]string{"head"}, "fork")
	os.Remove(lock)
	if got := w.read("build/fork/rpc/server.go"); strings.Contains(got, "edited") {
		w.t.Fatal("not cut off between the two")
	}
}

func TestCutForkFindsEdits(t *testing.T) {
	w := newWorld(t)
	w.cutFork()
	w.fails([]string{"cut off", "patchset fork"}, "refresh")
	// What was done since is not lost either.
	w.edit("build/fork/rpc/handler.go", "\ttwo()\n", "\ttwo() // since\n")
	out := w.ok("fork")
	if !strings.Contains(out, "rpc/server.go: edits carried over") || !strings.Contains(out, "cut off") {
		t.Error(out)
	}
	if !strings.Contains(w.read("build/fork/rpc/server.go"), "// edited") || !strings.Contains(w.read("build/fork/rpc/handler.go"), "handleAlone") {
		t.Error("the edit or the patch is lost")
	}
	_, after, ok := strings.Cut(out, "git -C build/fork show ")
	if !ok {
		t.Fatalf("the output names no commit:\n%s", out)
	}
	if got := w.git("build/fork", "show", strings.Fields(after)[0]); !strings.Contains(got, "+\ttwo() // since\n") {
		t.Errorf("kept:\n%s", got)
	}
	if out := w.ok("fork"); strings.Contains(out, "cut off") || !strings.Contains(out, "unchanged") {
		t.Errorf("found twice:\n%s", out)
	}
	w.ok("refresh")
	if got := w.read("patches/open.patch"); !strings.Contains(got, "// edited") {
		t.Errorf("open.patch:\n%s", got)
	}
}

// The patches changed once more: as ever a refusal, until they fit or --force.
func TestCutForkRefusesAndForces(t *testing.T) {
	w := newWorld(t)
	w.cutFork()
	w.edit("patches/open.patch", "+\ts.guard.note()", "+\ts.guard.tell()")
	w.fails([]string{"rpc/server.go", "--force"}, "fork")
	w.edit("patches/open.patch", "+\ts.guard.tell()", "+\ts.guard.note()")
	w.edit("patches/call.patch", "+func handleAlone", "+func handleUnguarded")
	w.ok("fork")
	if !strings.Contains(w.read("build/fork/rpc/server.go"), "// edited") || !strings.Contains(w.read("build/fork/rpc/handler.go"), "handleUnguarded") {
		t.Error("with the old patches the edits are not there")
	}

	w = newWorld(t)
	w.cutFork()
	if out := w.ok("fork", "--force"); strings.Contains(out, "carried over") {
		t.Error(out)
	}
	if strings.Contains(w.read("build/fork/rpc/server.go"), "edited") {
		t.Error("--force kept the edit")
	}
	w.ok("refresh")
}
