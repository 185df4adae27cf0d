// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"rpcguard/scripts/patchset/internal/diff"
)

func (w *world) commitAll() {
	w.git(w.dir, "add", "-A")
	w.git(w.dir, "commit", "-q", "-m", "state")
}

// Everything moved and nothing changed: the pin moves and the patches get the new
// line numbers.
func TestLiftMoves(t *testing.T) {
	w := newWorld(t)
	w.commitAll()
	w.ok("fork")
	w.same(w.dir, func() {
		out := w.ok("lift", "--from", "v1.0.0", "--to", "v1.1.0")
		for _, word := range []string{"lift from v1.0.0 to v1.1.0, base geth", "3 hunks: 1 clean, 2 moved, 0 conflicts, 0 targets gone"} {
			if !strings.Contains(out, word) {
				t.Errorf("the report does not say %q:\n%s", word, out)
			}
		}
	})
	// Lifting what is not pinned lays the release beside the pinned one.
	w.fails([]string{"--lay goes with --from"}, "lift", "--to", "v1.1.0", "--lay")
	w.ok("lift", "--from", "v1.0.0", "--to", "v1.1.0", "--lay", "--no-test")
	if got := w.read("build/fork-v1.1.0/rpc/server.go"); !strings.Contains(got, "var more") || !strings.Contains(got, "guard *Guard") {
		t.Errorf("laid:\n%s", got)
	}
	if got := w.read("patches/targets"); !strings.HasSuffix(got, "v1.1.0\n") {
		t.Errorf("targets: %q", got)
	}
	w.commitAll()
	out := w.ok("lift", "--to", "v1.1.0", "--no-test")
	if !strings.Contains(out, "v1.1.0 is pinned") || !strings.Contains(w.read("go.mod"), "go-ethereum v1.1.0") {
		t.Error(out)
	}
	if got := w.read("patches/open.patch"); !strings.Contains(got, "@@ -15,2 +15,3 @@ func (*Server) open") {
		t.Errorf("line numbers:\n%s", got)
	}
	if got := w.read("patches/call.patch"); got != patchFiles()["call"] {
		t.Errorf("a patch that did not move was written:\n%s", got)
	}
	if !strings.Contains(w.read("build/fork/rpc/server.go"), "var more") {
		t.Error("build/fork is not the new release")
	}
	w.ok("refresh")
	w.fails([]string{"not committed"}, "lift", "--to", "v1.0.0")
	w.commitAll()
	w.fails([]string{"v1.1.0 is pinned already"}, "lift", "--to", "v1.1.0")
	w.fails([]string{"no lift is under way"}, "lift", "--continue")
	w.fails([]string{"no lift is under way"}, "lift", "--abort")
	w.fails([]string{"--to vX"}, "lift")
}

// A target that is gone stops the lift; made by hand, the hunk comes back to its
// patch with the header and the place in the order that it had.
func TestLiftStopsAndContinues(t *testing.T) {
	w := newWorld(t)
	// A patch that only brings own files has no hunk to lose.
	parts := "Subject: rpc: add the parts\nReason: a test\nHooks: none\nUpstream-Status: not offered\nFiles: rpc/guard_call.go\n---\n"
	w.write("patches/parts.patch", parts)
	w.write("patches/series", "# the order\nparts\nfield\nopen # with a word\ncall\n")
	w.commitAll()
	w.ok("fork")
	w.fails([]string{"1 hunks have no place on v1.2.0", "rpc/server.go func (*Server) open", "refresh --into open rpc/server.go", "--continue", "--abort"}, "lift", "--to", "v1.2.0", "--no-test")
	w.fails([]string{"under way"}, "lift", "--to", "v1.2.0")
	w.fails([]string{"still without", "open.patch: rpc/server.go func (*Server) open"}, "lift", "--continue", "--no-test")
	if got := w.read("build/fork/rpc/server.go"); strings.Contains(got, "note()") || !strings.Contains(got, "guard *Guard") {
		t.Errorf("build/fork is not the new release with what fits:\n%s", got)
	}
	w.edit("build/fork/rpc/server.go", "reopen() {\n", "reopen() {\n\ts.guard.note()\n")
	w.ok("refresh", "--into", "open", "rpc/server.go")
	out := w.ok("lift", "--continue", "--no-test")
	if !strings.Contains(out, "v1.2.0 is pinned") {
		t.Error(out)
	}
	if got := w.read("patches/series"); got != "# the order\nparts\nfield\nopen # with a word\ncall\n" {
		t.Errorf("the order was not kept:\n%s", got)
	}
	if got := w.read("patches/open.patch"); !strings.HasPrefix(got, "Subject: rpc: tell the guard\n") || !strings.Contains(got, "@@ func (*Server) reopen\n") {
		t.Errorf("open.patch:\n%s", got)
	}
	if got := w.read("patches/parts.patch"); got != parts {
		t.Errorf("parts.patch:\n%s", got)
	}
	if _, err := os.Stat("build/lift"); err == nil {
		t.Error("the state was left behind")
	}
	dir := w.checkoutOf("v1.2.0", false)
	w.ok("apply", dir)
}

// What is not needed any more is dropped by its name, and nothing else is.
func TestLiftDrops(t *testing.T) {
	w := newWorld(t)
	w.commitAll()
	w.fails([]string{"--drop"}, "lift", "--to", "v1.2.0", "--no-test")
	w.fails([]string{"--drop goes with --continue"}, "lift", "--abort", "--drop", "open:rpc/server.go")
	w.fails([]string{"0 of 1 changes", "lift --continue --drop 'open:rpc/server.go:func (*Server) open'"}, "lift", "--continue", "--no-test")
	w.fails([]string{"no hunk was lost", "--drop 'open:rpc/server.go:func (*Server) open'"}, "lift", "--continue", "--no-test", "--drop", "field:rpc/server.go")
	out := w.ok("lift", "--continue", "--no-test", "--drop", "open:rpc/server.go:func (*Server) open")
	for _, word := range []string{"dropped: open:rpc/server.go:func (*Server) open", "patches/bases/NAME", "open.patch: nothing is left", "v1.2.0 is pinned"} {
		if !strings.Contains(out, word) {
			t.Errorf("the output does not say %q:\n%s", word, out)
		}
	}
	if got := w.read("patches/series"); got != "# the order\nfield\ncall\n" {
		t.Errorf("series:\n%s", got)
	}
	w.ok("status")
}

// Lost and made again are counted by declaration and by change, not by hunk.
func TestLiftMissing(t *testing.T) {
	hunk := func(decl, text string) *diff.Hunk {
		h := &diff.Hunk{Decl: decl}
		for line := range strings.Lines(text) {
			h.Lines = append(h.Lines, diff.Line{Op: line[0], Text: line[1:]})
		}
		return h
	}
	const (
		kept = " 1\n+kept\n 2\n"
		x    = " 3\n+x\n 4\n"
		y    = " 5\n+y\n 6\n"
		new1 = " 7\n+new\n 8\n"
		new2 = " 9\n-old\n+other\n 9\n"
	)
	type hunks map[string][]string
	for _, c := range []struct {
		name      string
		lost, now hunks
		missing   string
	}{
		{"as it was", hunks{"A": {x}}, hunks{"K": {kept}, "A": {x}}, ""},
		{"nothing", hunks{"A": {x}}, hunks{"K": {kept}}, "A"},
		{"spelled anew", hunks{"A": {x}}, hunks{"K": {kept}, "A": {new1}}, ""},
		{"elsewhere", hunks{"A": {x}}, hunks{"K": {kept}, "B": {x}}, ""},
		{"elsewhere and anew", hunks{"A": {x}}, hunks{"K": {kept}, "B": {new1}}, "A"},
		{"one twice for both", hunks{"A": {x}, "B": {y}}, hunks{"K": {kept}, "A": {new1, new2}}, "B"},
		{"one for two equal", hunks{"A": {x}, "B": {x}}, hunks{"K": {kept}, "A": {x}}, "B"},
		{"two in one hunk", hunks{"A": {x, y}}, hunks{"K": {kept}, "A": {x + y}}, ""},
		{"two made one", hunks{"A": {x, y}}, hunks{"K": {kept}, "A": {new1}}, "A"},
		{"beside what stayed", hunks{"K": {x}}, hunks{"K": {kept + x}}, ""},
	} {
		patch := func(of hunks) *diff.Patch {
			f := &diff.File{Path: "rpc/server.go"}
			for _, decl := range slices.Sorted(maps.Keys(of)) {
				for _, text := range of[decl] {
					h := hunk("func "+decl, text)
					h.OldStart, h.NewStart = 1, 1
					f.Hunks = append(f.Hunks, h)
				}
			}
			return &diff.Patch{Name: "p", Head: "x\n", Files: []*diff.File{f}}
		}
		s := &liftState{Partial: map[string]string{"p": string(patch(hunks{"K": {kept}}).Format())}}
		for _, h := range patch(c.lost).Files[0].Hunks {
			s.Lost = append(s.Lost, &lostHunk{Patch: "p", Path: "rpc/server.go", Hunk: h})
		}
		now := &set{Patches: []*diff.Patch{patch(c.now)}}
		got, err := s.missing(now)
		if err != nil {
			t.Fatal(err)
		}
		if (c.missing == "") != (len(got) == 0) || len(got) > 1 || c.missing != "" && !strings.Contains(got[0], "func "+c.missing+":") {
			t.Errorf("%s: missing %v, want %q", c.name, got, c.missing)
		}
		if c.missing == "" {
			continue
		}
		if err := s.drop("p:rpc/server.go:func " + c.missing); err != nil {
			t.Fatal(err)
		}
		if got, _ := s.missing(now); len(got) > 0 {
			t.Errorf("%s: dropped, but %v", c.name, got)
		}
	}
}

func TestLiftAborts(t *testing.T) {
	w := newWorld(t)
	w.commitAll()
	w.ok("fork")
	w.fails(nil, "lift", "--to", "v1.2.0", "--no-test")
	out := w.ok("lift", "--abort")
	if strings.Contains(out, "kept") {
		t.Errorf("nothing was made by hand:\n%s", out)
	}
	as := func() {
		t.Helper()
		if s := w.git(w.dir, "status", "--porcelain"); s != "" {
			t.Errorf("not as before:\n%s", s)
		}
		if got := w.read("build/fork/rpc/server.go"); !strings.Contains(got, ") open()") || strings.Contains(got, "by hand") {
			t.Errorf("build/fork is not as before:\n%s", got)
		}
		w.ok("refresh")
	}
	as()
	// What was made by hand is kept, in patches and not yet.
	w.fails(nil, "lift", "--to", "v1.2.0", "--no-test")
	w.edit("build/fork/rpc/server.go", "reopen() {\n", "reopen() {\n\ts.guard.note() // by hand\n")
	w.ok("refresh", "--into", "new", "rpc/server.go")
	w.edit("build/fork/rpc/handler.go", "\ttwo()\n", "\ttwo() // by hand\n")
	out = w.ok("lift", "--abort")
	as()
	_, commit, _ := strings.Cut(out, "git -C build/fork show ")
	_, dir, ok := strings.Cut(out, "are kept in build/")
	if !ok || commit == "" {
		t.Fatal(out)
	}
	if got := w.git("build/fork", "show", strings.Fields(commit)[0]); !strings.Contains(got, "+\ttwo() // by hand") {
		t.Errorf("kept edits:\n%s", got)
	}
	kept := snapshot(t, "build/"+strings.Fields(dir)[0])
	if len(kept) != 1 || !strings.Contains(kept["new.patch"], "// by hand") {
		t.Errorf("kept patches: %v", kept)
	}
	w.fails([]string{"v9.9.9"}, "lift", "--to", "v9.9.9")
	if s := w.git(w.dir, "status", "--porcelain"); s != "" {
		t.Errorf("a failed lift changed something:\n%s", s)
	}
}

// What no hunk made by hand can mend is told before anything moves.
func TestLiftLooksBeforeItMoves(t *testing.T) {
	w := newWorld(t)
	w.write("patches/bases/new/base", "has rpc/server.go var more\n")
	w.write("patches/base", "lacks rpc/server.go var more\nlacks rpc/server.go never\n")
	w.commitAll()
	w.ok("fork")
	w.same(w.dir, func() {
		for _, args := range [][]string{{"--from", "v1.0.0"}, {"--no-test"}} {
			out, errs := new(strings.Builder), new(strings.Builder)
			if run(append([]string{"lift", "--to", "v1.1.0"}, args...), out, errs) == 0 {
				t.Errorf("%v: no error", args)
			}
			for _, word := range []string{"(base geth)", "lacks var more", "fails", "3 hunks: 1 clean, 2 moved", `v1.1.0: rpc/server.go contains "var more"`} {
				if !strings.Contains(out.String(), word) {
					t.Errorf("%v: the report does not say %q:\n%s", args, word, out)
				}
			}
			if !strings.Contains(errs.String(), "v1.1.0 is not for base geth, and nothing was changed") || !strings.Contains(errs.String(), "base new fits it as it is") {
				t.Errorf("%v: %s", args, errs)
			}
		}
	})
	// An own file of which the release has one, too.
	w.write("patches/base", "# any\n")
	w.write("rpc/pair.go", "package rpc\n")
	w.commitAll()
	w.same(w.dir, func() {
		w.fails([]string{"rpc/pair.go is a file of upstream's there", "nothing was changed"}, "lift", "--to", "v1.3.0", "--no-test")
	})
	// Edits that no patch has would stand in the way later.
	w.edit("build/fork/rpc/handler.go", "\ttwo()\n", "\ttwo() // mine\n")
	w.same(w.dir, func() {
		w.fails([]string{"nothing was changed", "rpc/handler.go", "patchset refresh"}, "lift", "--to", "v1.1.0", "--no-test")
	})
}

// A file of somebody's stands where an own one belongs: the list of what to do is
// printed all the same.
func TestLiftStopsWithTheList(t *testing.T) {
	w := newWorld(t)
	w.commitAll()
	w.ok("fork")
	os.Remove("build/fork/rpc/guard.go")
	w.write("build/fork/rpc/guard.go", guardGo+"// edited\n")
	w.fails([]string{"could not be laid", "rpc/guard.go", "refresh --into open rpc/server.go", "--abort"}, "lift", "--to", "v1.2.0", "--no-test")
	back := func() {
		t.Helper()
		w.fails([]string{"build/fork is not as before", "rpc/guard.go", "patchset fork"}, "lift", "--abort")
		if s := w.git(w.dir, "status", "--porcelain"); s != "" {
			t.Errorf("not as before:\n%s", s)
		}
	}
	back()
	w.fails([]string{"rpc/guard.go", "--continue", "--abort"}, "lift", "--to", "v1.1.0", "--no-test")
	back()
	if got := w.read("build/fork/rpc/guard.go"); !strings.Contains(got, "// edited") {
		t.Error("the own file that was edited is lost")
	}
}

// Hunks that have become neighbours are told like any other that has no place, with
// the text that the hunk stood in.
func TestLiftNeighbours(t *testing.T) {
	w := newWorld(t)
	head, _, _ := strings.Cut(patchFiles()["call"], "diff ")
	w.write("patches/pair.patch", head+"diff --git a/rpc/pair.go b/rpc/pair.go\n--- a/rpc/pair.go\n+++ b/rpc/pair.go\n"+
		"@@ -4,2 +4,3 @@ func pair\n \tone()\n+\tguard()\n \ttwo()\n@@ -7,2 +8,3 @@ func pair\n \ttwo()\n+\tguard()\n \tthree()\n")
	w.write("patches/late.patch", head+"diff --git a/rpc/server.go b/rpc/server.go\n--- a/rpc/server.go\n+++ b/rpc/server.go\n"+
		"@@ -10,2 +10,3 @@ func (*Server) open\n \ts.guard.note()\n+\ts.guard.late()\n }\n")
	w.write("patches/series", "pair\nfield\nopen\ncall\nlate\n")
	out, errs := new(strings.Builder), new(strings.Builder)
	if run([]string{"lift", "--from", "v1.3.0", "--to", "v1.4.0"}, out, errs) == 0 {
		t.Error("no error")
	}
	for _, word := range []string{"6 hunks: 5 clean, 0 moved, 1 conflicts", "overlap", "    |\ttwo()\n    |\tthree()\n"} {
		if !strings.Contains(out.String(), word) {
			t.Errorf("the report does not say %q:\n%s%s", word, out, errs)
		}
	}
	out.Reset()
	if run([]string{"lift", "--from", "v1.3.0", "--to", "v1.2.0"}, out, errs) == 0 {
		t.Error("no error")
	}
	if word := "    |\ts.run = true\n    |\ts.guard.note()\n    |}\n"; !strings.Contains(out.String(), word) {
		t.Errorf("the report of late.patch does not show %q:\n%s", word, out)
	}
}

// Every package that has tests of ours is tested before a release is called pinned.
func TestLiftChecks(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"rpc", "graphql", "eth/tracers/logger"} {
		os.MkdirAll(dir+"/"+name, 0o755)
	}
	own := []ownFile{{Path: "rpc/guard_test.go"}, {Path: "graphql/guard_test.go"}, {Path: "graphql/guard_more_test.go"}, {Path: "eth/tracers/logger/guard_test.go"}, {Path: "cmd/geth/guard.go"}, {Path: "gone/guard_test.go"}}
	list := checks(dir, own)
	if got := strings.Join(list[len(list)-1], " "); !strings.HasPrefix(got, "test ") || !strings.HasSuffix(got, " -run "+ownTests+" ./eth/tracers/logger ./graphql") {
		t.Errorf("last check: %s", got)
	}
	if got := strings.Join(list[len(list)-2], " "); !strings.HasSuffix(got, "./rpc ./node ./eth/filters") || strings.Contains(got, "-run") {
		t.Errorf("check before: %s", got)
	}
}

// Hunks of a base that make one change are alternatives; a hook whose declaration
// is not there is left out with its own file, and found out again when reversed.
func TestAlternativesAndOptional(t *testing.T) {
	w := newWorld(t)
	alt := func(last string) string {
		return "@@ -5,2 +5,3 @@ type Server\n \t" + last + "\n+\tguard *Guard\n }\n"
	}
	w.write("patches/bases/old/field.patch", "Another field.\n---\ndiff --git a/rpc/server.go b/rpc/server.go\n--- a/rpc/server.go\n+++ b/rpc/server.go\n"+alt("was bool")+alt("is bool"))
	w.write("patches/bases/old/open.patch", "Another name.\n---\ndiff --git a/rpc/server.go b/rpc/server.go\n--- a/rpc/server.go\n+++ b/rpc/server.go\n@@ -10,2 +10,3 @@ func (*Server) open\n \ts.is = true\n+\ts.guard.note()\n }\n")
	w.write("patches/bases/old/base", "optional rpc/handler.go rpc/guard_call.go func handle\n")
	dir := w.checkoutOf("v0.9.0", false)
	if out := w.ok("apply", dir); !strings.Contains(out, "base old, 2 own files") {
		t.Error(out)
	}
	w.ok("apply", "--reverse", dir)
	write(t, dir+"/rpc/handler.go", "package rpc\n\nfunc other() {}\n")
	before := snapshot(t, dir)
	if out := w.ok("apply", dir); !strings.Contains(out, "base old, 1 own files") {
		t.Error(out)
	}
	if out := w.ok("apply", dir); !strings.Contains(out, "already applied (base old)") {
		t.Error(out)
	}
	w.ok("apply", "--reverse", dir)
	for name, text := range snapshot(t, dir) {
		if before[name] != text {
			t.Errorf("%s is not as before", name)
		}
	}
	// The main hook changes and the variant is forgotten: loud, not silent.
	w.edit("patches/open.patch", "+\ts.guard.note()", "+\ts.guard.tell()\n+\ts.guard.more()")
	w.write("patches/open.patch", strings.Replace(w.read("patches/open.patch"), "+10,3", "+10,4", 1))
	w.write("patches/bases/old/open.patch", strings.Replace(w.read("patches/bases/old/open.patch"), "func (*Server) open", "func (*Server) reopen", 1))
	w.fails([]string{"base old"}, "apply", dir)
}

func TestBasesTable(t *testing.T) {
	w := newWorld(t)
	w.write("patches/targets", "v1.0.0 # the pin\n\nv1.2.0\n")
	out, errs := new(strings.Builder), new(strings.Builder)
	if run([]string{"bases"}, out, errs) == 0 {
		t.Error("a target that does not fit is no error")
	}
	for _, word := range []string{"v1.0.0: applies strictly", "v1.2.0: applies no", "open.patch"} {
		if !strings.Contains(out.String(), word) {
			t.Errorf("the table does not say %q:\n%s%s", word, out, errs)
		}
	}
}
