// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"os"
	"strings"
	"testing"
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
	if got := w.read("patches/series"); got != "# the order\nfield\nopen\ncall\n" {
		t.Errorf("the order was not kept:\n%s", got)
	}
	if got := w.read("patches/open.patch"); !strings.HasPrefix(got, "Subject: rpc: tell the guard\n") || !strings.Contains(got, "@@ func (*Server) reopen\n") {
		t.Errorf("open.patch:\n%s", got)
	}
	if _, err := os.Stat("build/lift"); err == nil {
		t.Error("the state was left behind")
	}
	dir := w.checkoutOf("v1.2.0", false)
	w.ok("apply", dir)
}

func TestLiftAborts(t *testing.T) {
	w := newWorld(t)
	w.commitAll()
	w.ok("fork")
	w.fails(nil, "lift", "--to", "v1.2.0", "--no-test")
	w.ok("lift", "--abort")
	if s := w.git(w.dir, "status", "--porcelain"); s != "" {
		t.Errorf("not as before:\n%s", s)
	}
	w.ok("fork", "--force")
	w.ok("refresh")
	w.fails([]string{"v9.9.9"}, "lift", "--to", "v9.9.9")
	if s := w.git(w.dir, "status", "--porcelain"); s != "" {
		t.Errorf("a failed lift changed something:\n%s", s)
	}
}

// What a fork has and the pinned release has not is listed, by kind.
func TestDrift(t *testing.T) {
	w := newWorld(t)
	dir := w.checkoutOf("v1.0.0", false)
	if out := w.ok("drift", dir); !strings.Contains(out, "0 of them not in v1.0.0") || !strings.Contains(out, "looked for:") {
		t.Error(out)
	}
	write(t, dir+"/eth/filters/own.go", `package filters

func (api *API) Votes(ctx Context) {
	n, _ := rpc.NotifierFromContext(ctx)
	_ = n
}

func (es *System) handleVote(v Vote) {
	for _, f := range es.all {
		f.votes <- v
	}
	select {
	case es.tell <- v:
	case <-es.quit:
	}
	for {
		f.hashes = append(f.hashes, v.Hash())
	}
}
`)
	write(t, dir+"/cmd/own/main.go", "package main\n\nfunc main() {\n\tsrv := rpc.NewServer()\n\tother.NewServer()\n\tgo srv.ServeCodec(nil, 0)\n}\n")
	write(t, dir+"/eth/filters/own_test.go", "package filters\n\nfunc f() { c <- 1 }\n")
	out, errs := new(strings.Builder), new(strings.Builder)
	if run([]string{"drift", dir}, out, errs) == 0 {
		t.Error("new call sites are no error")
	}
	if !strings.Contains(errs.String(), "5 call sites") {
		t.Errorf("%s%s", out, errs)
	}
	for _, word := range []string{"eth/filters/own.go:4", "func (*API) Votes", "eth/filters/own.go:10", "blocking send", "eth/filters/own.go:17", "queue", "cmd/own/main.go:4", "server", "cmd/own/main.go:6", "entry"} {
		if !strings.Contains(out.String(), word) {
			t.Errorf("drift does not say %q:\n%s", word, out)
		}
	}
	w.fails([]string{"no Go files"}, "drift", t.TempDir())
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
