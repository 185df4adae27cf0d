// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestApplyCommits(t *testing.T) {
	w := newWorld(t)
	dir := w.checkoutOf("v1.0.0", true)
	before := snapshot(t, dir)
	w.ok("apply", dir, "--commit")
	log := w.git(dir, "log", "--format=%s|%an", "--reverse")
	want := "upstream|somebody\nrpc: keep a guard|rpcguard\nrpc: tell the guard|rpcguard\nrpc: wrap the handler|rpcguard\n"
	if log != want {
		t.Errorf("commits:\n%swant\n%s", log, want)
	}
	if s := w.git(dir, "status", "--porcelain"); s != "" {
		t.Errorf("left dirty:\n%s", s)
	}
	msg := w.git(dir, "log", "-1", "--format=%b")
	for _, word := range []string{"a test needs it,\nand says so", "Hooks:\n  rpc/handler.go handle", "Upstream-Status: not offered", "Rpcguard-Patch: call"} {
		if !strings.Contains(msg, word) {
			t.Errorf("the message does not say %q:\n%s", word, msg)
		}
	}
	if files := w.git(dir, "show", "--stat", "--format=", "HEAD~2"); !strings.Contains(files, "rpc/guard.go") {
		t.Errorf("own files did not come with the first patch:\n%s", files)
	}
	if out := w.ok("apply", dir, "--commit"); !strings.Contains(out, "already applied") {
		t.Error(out)
	}
	w.ok("apply", dir, "--commit", "--reverse")
	if s := w.git(dir, "diff", "HEAD~4", "--stat"); s != "" {
		t.Errorf("taking out left:\n%s", s)
	}
	w.same(dir, func() {})
	if after := snapshot(t, dir); len(after) != len(before) {
		t.Errorf("files left: %v", after)
	}
}

// A commit that fails half way, here since somebody holds the index, leaves neither its
// commits nor its files.
func TestFailedCommitIsTakenBack(t *testing.T) {
	w := newWorld(t)
	dir := w.checkoutOf("v1.0.0", true)
	before, head := snapshot(t, dir), w.git(dir, "rev-parse", "HEAD")
	lock := filepath.Join(dir, ".git", "index.lock")
	write(t, lock, "")
	w.fails([]string{"index.lock"}, "apply", dir, "--commit")
	if err := os.Remove(lock); err != nil {
		t.Fatal(err)
	}
	if now := w.git(dir, "rev-parse", "HEAD"); now != head {
		t.Errorf("HEAD is %s, was %s", now, head)
	}
	if s := w.git(dir, "status", "--porcelain"); s != "" {
		t.Errorf("left dirty:\n%s", s)
	}
	if after := snapshot(t, dir); !maps.Equal(after, before) {
		t.Errorf("files differ: %v", after)
	}
	w.ok("apply", dir, "--commit")
}

func TestSeriesIsTakenByGitAm(t *testing.T) {
	w := newWorld(t)
	w.write("rpc/guard_utf8.go", "package rpc\n\n// Grüße, €.\n")
	w.write("rpc/testdata/empty", "")
	w.write("rpc/testdata/noeol", "no end of line")
	w.ok("series", "--out", "build/series")
	first := snapshot(t, "build/series")
	w.ok("series", "--out", "build/series")
	for name, text := range snapshot(t, "build/series") {
		if first[name] != text {
			t.Errorf("%s differs the second time", name)
		}
	}
	dir := w.checkoutOf("v1.0.0", true)
	mails, _ := filepath.Glob(filepath.Join(w.dir, "build", "series", "*.patch"))
	if len(mails) != 3 {
		t.Fatalf("%d mails", len(mails))
	}
	w.git(dir, append([]string{"am", "-q"}, mails...)...)
	got := snapshot(t, dir)
	other := w.checkoutOf("v1.0.0", true)
	w.ok("apply", "--commit", other)
	for name, text := range snapshot(t, other) {
		if got[name] != text {
			t.Errorf("%s: git am gives %q, apply %q", name, got[name], text)
		}
	}
	if a, b := w.git(dir, "log", "--format=%s%n%b", "-3"), w.git(other, "log", "--format=%s%n%b", "-3"); a != b {
		t.Errorf("messages differ:\n%s\n%s", a, b)
	}
	write(t, "build/other/notes", "mine")
	w.fails([]string{"notes"}, "series", "--out", "build/other")
	w.fails([]string{"--out"}, "series")

	// Somebody else's patches are not ours to remove, whatever they are called.
	theirs := "From " + strings.Repeat("1", 40) + " Mon Sep 17 00:00:00 2001\nFrom: A <a@b>\nSubject: [PATCH] x\n\n---\n"
	for _, name := range []string{"mine.patch", "0001-theirs.patch"} {
		at := "build/with-" + name + "/" + name
		write(t, at, theirs)
		w.fails([]string{name, "--out"}, "series", "--out", filepath.Dir(at))
		if got := snapshot(t, filepath.Dir(at)); len(got) != 1 || got[name] != theirs {
			t.Errorf("%s was touched: %v", at, got)
		}
	}
	// A mail that cannot be made leaves what is there.
	w.edit("patches/call.patch", "Subject: rpc: wrap", "Subject: rpc: wräp")
	w.same("build/series", func() { w.fails([]string{"plain ASCII"}, "series", "--out", "build/series") })
	w.edit("patches/call.patch", "Subject: rpc: wräp", "Subject: rpc: wrap")
	// A patch that is no longer in the series takes its mail along.
	w.write("patches/series", "field\ncall\n")
	w.ok("series", "--out", "build/series")
	if got := snapshot(t, "build/series"); len(got) != 2 || got["0002-call.patch"] == "" {
		t.Errorf("mails of a shorter series: %d", len(got))
	}
}
