// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rpcguard/scripts/patchset/internal/tree"
)

// halfApplied writes a whole apply and leaves its journal, as a run killed before its end.
func halfApplied(t *testing.T, dir string, commit bool) (*checkout, position, string) {
	t.Helper()
	c, err := openCheckout(dir)
	if err != nil {
		t.Fatal(err)
	}
	r, err := findRepo()
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.choose(c.tree.Read, "", false)
	if err != nil {
		t.Fatal(err)
	}
	var changes []tree.Change
	for path, text := range p.after {
		changes = append(changes, tree.Change{Path: path, Data: []byte(text)})
	}
	for i := range p.set.Patches {
		own, err := p.ownChanges(i)
		if err != nil {
			t.Fatal(err)
		}
		changes = append(changes, own...)
	}
	var at position
	head := ""
	if commit {
		if at, err = c.position(); err == nil {
			head, err = c.commits(at, p, false, changes)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := c.tree.Write(changes, head, nil); err != nil {
		t.Fatal(err)
	}
	return c, at, head
}

// What the user did after a kill stays: the next run refuses, says where the old
// contents are, and goes on as soon as one of the two ways on was taken.
func TestWorkAfterCutOffApply(t *testing.T) {
	w := newWorld(t)
	for _, giveUp := range []bool{false, true} {
		dir := w.checkoutOf("v1.0.0", true)
		c, _, _ := halfApplied(t, dir, false)
		w.git(dir, "reset", "-q", "--hard")
		w.git(dir, "clean", "-fdq")
		server := filepath.Join(dir, "rpc", "server.go")
		write(t, server, servers+"// my work\n")
		w.same(dir, func() {
			w.fails([]string{"rpc/server.go", "neither as they were", c.tree.Journal()}, "apply", dir)
		})
		if giveUp {
			if err := os.RemoveAll(c.tree.Journal()); err != nil {
				t.Fatal(err)
			}
			w.same(dir, func() { w.fails([]string{"not committed", "rpc/server.go"}, "apply", dir) })
			w.git(dir, "commit", "-qam", "mine")
		} else {
			write(t, server, servers)
		}
		w.ok("apply", dir)
		if got := snapshot(t, dir)["rpc/server.go"]; strings.Contains(got, "// my work") != giveUp || !strings.Contains(got, "guard *Guard") {
			t.Errorf("give up %v: %s", giveUp, got)
		}
	}
}

// A kill after the branch was moved leaves nothing to put back, even where the user
// went on from there.
func TestCutOffAfterCommits(t *testing.T) {
	w := newWorld(t)
	for _, state := range []string{"moved", "index too", "went on"} {
		dir := w.checkoutOf("v1.0.0", true)
		c, at, head := halfApplied(t, dir, true)
		switch state {
		case "moved":
			w.git(dir, "update-ref", "HEAD", head)
		case "index too":
			if err := c.moveHead(at, head); err != nil {
				t.Fatal(err)
			}
		case "went on":
			if err := c.moveHead(at, head); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, "README"), "mine\n")
			w.git(dir, "commit", "-qam", "mine")
		}
		before := snapshot(t, dir)
		w.fails([]string{"cut off", "without --check"}, "apply", "--check", dir)
		if out := w.ok("apply", dir); !strings.Contains(out, "finished") || !strings.Contains(out, "already applied") {
			t.Errorf("%s: %s", state, out)
		}
		if s := w.git(dir, "status", "--porcelain"); s != "" || !maps.Equal(before, snapshot(t, dir)) {
			t.Errorf("%s: left dirty:\n%s", state, s)
		}
		if _, err := os.Stat(c.tree.Journal()); err == nil {
			t.Errorf("%s: the journal is still there", state)
		}
		w.ok("apply", "--reverse", "--commit", dir)
	}
}

// Two runs on one tree: the second is refused before it changes anything.
func TestTwoRunsAtOnce(t *testing.T) {
	w := newWorld(t)
	for _, git := range []bool{false, true} {
		dir := w.checkoutOf("v1.0.0", git)
		c, err := openCheckout(dir)
		if err != nil {
			t.Fatal(err)
		}
		release, err := c.tree.Lock()
		if err != nil {
			t.Fatal(err)
		}
		w.same(dir, func() {
			w.fails([]string{"another run", "wait for it to end"}, "apply", dir)
			w.fails([]string{"another run"}, "apply", "--reverse", dir)
			w.ok("apply", "--check", dir)
		})
		release()
		c, _, _ = halfApplied(t, dir, false)
		if release, err = c.tree.Lock(); err != nil {
			t.Fatal(err)
		}
		w.same(dir, func() { w.fails([]string{"another run"}, "apply", "--check", dir) })
		release()
		w.ok("apply", dir)
	}
}

// So on this repository, by every command that writes to it.
func TestTwoRunsOnTheRepository(t *testing.T) {
	w := newWorld(t)
	w.commitAll()
	w.ok("fork")
	r, err := findRepo()
	if err != nil {
		t.Fatal(err)
	}
	release, err := r.hold(nil)
	if err != nil {
		t.Fatal(err)
	}
	w.same(w.dir, func() {
		for _, args := range [][]string{{"fork"}, {"refresh"}, {"lift", "--to", "v1.1.0"}, {"lift", "--abort"}} {
			w.fails([]string{"another run", "wait for it to end"}, args...)
		}
	})
	release()
	// A refresh that was cut off is put back, with what was edited since left alone.
	t1, err := tree.Open(r.root, patchesJournal)
	if err != nil {
		t.Fatal(err)
	}
	before := w.read("patches/open.patch")
	if err := t1.Write([]tree.Change{{Path: "patches/open.patch", Data: []byte("half")}}, "", nil); err != nil {
		t.Fatal(err)
	}
	if release, err = t1.Lock(); err != nil { // it is under way still
		t.Fatal(err)
	}
	w.same(w.dir, func() { w.fails([]string{"another run"}, "status") })
	release()
	w.write("patches/open.patch", "mine")
	w.same(w.dir, func() { w.fails([]string{"patches/open.patch", "neither as they were"}, "refresh") })
	w.write("patches/open.patch", "half")
	if out := w.ok("refresh"); !strings.Contains(out, "put back") || w.read("patches/open.patch") != before {
		t.Errorf("%s\n%s", out, w.read("patches/open.patch"))
	}
}

// The error says that the tree is as it was, only where it is.
func TestFailedWriteIsTakenBack(t *testing.T) {
	w := newWorld(t)
	dir := w.checkoutOf("v1.0.0", true)
	write(t, filepath.Join(dir, "rpc", "server.go.rpcguard-tmp", "x"), "x")
	w.same(dir, func() { w.fails([]string{"server.go.rpcguard-tmp", "was put back as it was"}, "apply", dir) })
	if _, err := os.Stat(filepath.Join(dir, ".git", "rpcguard-journal")); err == nil {
		t.Error("the journal was left")
	}
}
