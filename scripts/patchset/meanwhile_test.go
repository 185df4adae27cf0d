// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// after has the given shell script run once, right after the tool's first git command
// of that name, with the checkout as its directory: what somebody does meanwhile.
func (w *world) after(command, dir, script string) {
	w.t.Helper()
	git, err := exec.LookPath("git")
	if err != nil {
		w.t.Fatal(err)
	}
	bin := w.t.TempDir()
	text := fmt.Sprintf(`#!/bin/sh
'%s' "$@"
code=$?
case " $* " in
*' %s '*) if mkdir '%s/once' 2>/dev/null; then
	exec >/dev/null 2>'%s/errors'
	PATH=${PATH#*:} && unset GIT_AUTHOR_NAME && cd '%s' && set -e
	%s
	fi ;;
esac
exit $code
`, git, command, bin, bin, dir, script)
	if err := os.WriteFile(filepath.Join(bin, "git"), []byte(text), 0o755); err != nil {
		w.t.Fatal(err)
	}
	path := os.Getenv("PATH")
	w.t.Setenv("PATH", bin+string(os.PathListSeparator)+path)
	w.t.Cleanup(func() {
		if said, err := os.ReadFile(filepath.Join(bin, "errors")); err != nil || len(said) > 0 {
			w.t.Errorf("the script after %s did not do its work: %v %s", command, err, said)
		}
	})
}

// A commit or a checkout made while the patches' commits are being made is neither
// dropped nor given to another branch.
func TestHeadMovesMeanwhile(t *testing.T) {
	const commit = "git -c user.name=m -c user.email=m@m commit -q --allow-empty -m mine"
	w := newWorld(t)
	for what, script := range map[string]string{
		"a commit":                       commit,
		"another branch":                 "git checkout -q other",
		"another branch with a commit":   "git checkout -q other; " + commit,
		"a detached head":                "git checkout -q --detach",
		"a new branch in the same place": "git checkout -q -b third",
	} {
		t.Run(what, func(t *testing.T) {
			w := &world{t, w.dir}
			dir := w.checkoutOf("v1.0.0", true)
			w.git(dir, "branch", "other")
			before, upstream := snapshot(t, dir), w.git(dir, "rev-parse", "HEAD")
			w.after("fast-import", dir, script)
			w.fails([]string{"meanwhile", "was put back as it was"}, "apply", dir, "--commit")
			for _, branch := range strings.Fields(w.git(dir, "for-each-ref", "--format=%(refname)")) {
				log := strings.ReplaceAll(w.git(dir, "log", "--format=%s", branch), "mine\n", "")
				if log != "upstream\n" {
					t.Errorf("%s was moved: %s", branch, log)
				}
			}
			if has := strings.Contains(w.git(dir, "log", "--format=%s"), "mine"); has != strings.Contains(script, "mine") {
				t.Error("the commit made meanwhile is gone")
			}
			if s := w.git(dir, "status", "--porcelain"); s != "" || !maps.Equal(before, snapshot(t, dir)) {
				t.Errorf("left dirty:\n%s", s)
			}
			if strings.Contains(script, "mine") == (w.git(dir, "rev-parse", "HEAD") == upstream) {
				t.Error("HEAD is not where it was left")
			}
			w.ok("apply", dir, "--commit")
		})
	}
}

// A detached HEAD takes the commits, and no branch does.
func TestApplyCommitsDetached(t *testing.T) {
	w := newWorld(t)
	dir := w.checkoutOf("v1.0.0", true)
	w.git(dir, "checkout", "-q", "--detach")
	w.ok("apply", dir, "--commit")
	if n := w.git(dir, "rev-list", "--count", "HEAD"); n != "4\n" {
		t.Errorf("%s commits", n)
	}
	if n := w.git(dir, "rev-list", "--count", "--branches"); n != "1\n" {
		t.Errorf("%s commits on branches", n)
	}
}

// The ref that fast-import wants is no way for two runs to get at each other's commits,
// and goes.
func TestImportRefIsOurs(t *testing.T) {
	w := newWorld(t)
	dir := w.checkoutOf("v1.0.0", true)
	w.after("fast-import", dir, `git for-each-ref --format='update %(refname) '$(git rev-parse HEAD) refs/rpcguard refs/worktree | git update-ref --stdin`)
	w.ok("apply", dir, "--commit")
	if log := w.git(dir, "log", "--format=%s"); strings.Count(log, "\n") != 4 {
		t.Errorf("commits:\n%s", log)
	}
	if refs := w.git(dir, "for-each-ref", "--format=%(refname)", "refs/rpcguard", "refs/worktree"); refs != "" {
		t.Errorf("left %s", refs)
	}
}

// What an editor saves between planning and writing is not written over.
func TestEditMeanwhile(t *testing.T) {
	w := newWorld(t)
	for _, commit := range []bool{false, true} {
		dir := w.checkoutOf("v1.0.0", true)
		before := snapshot(t, dir)
		args, command := []string{"apply", dir}, "cat-file"
		if commit {
			args, command = append(args, "--commit"), "fast-import"
		}
		w.after(command, dir, "echo '// my work' >> rpc/server.go")
		w.fails([]string{"rpc/server.go changed"}, args...)
		before["rpc/server.go"] += "// my work\n"
		if after := snapshot(t, dir); !maps.Equal(before, after) {
			t.Errorf("commit %v: %v", commit, after)
		}
		if log := w.git(dir, "log", "--format=%s"); log != "upstream\n" {
			t.Errorf("commits:\n%s", log)
		}
	}
}

// Edits that git was told not to look at are edits: the plan reads the work tree, and
// a commit would take them along.
func TestHiddenEditsRefused(t *testing.T) {
	w := newWorld(t)
	for _, how := range []string{"--assume-unchanged", "--skip-worktree"} {
		dir := w.checkoutOf("v1.0.0", true)
		w.git(dir, "update-index", how, "rpc/server.go")
		w.ok("apply", dir)
		w.ok("apply", dir, "--reverse")
		write(t, filepath.Join(dir, "rpc", "server.go"), servers+"\n// private\n")
		w.same(dir, func() {
			for _, more := range []string{"--check", "--commit", "--base=geth"} {
				w.fails([]string{"rpc/server.go", "HEAD"}, "apply", dir, more)
			}
		})
		write(t, filepath.Join(dir, "rpc", "server.go"), servers)
		w.ok("apply", dir, "--commit")
		write(t, filepath.Join(dir, "rpc", "server.go"), strings.Replace(snapshot(t, dir)["rpc/server.go"], "// Server serves.\n", "// Server serves me.\n", 1))
		w.git(dir, "update-index", how, "rpc/server.go")
		w.same(dir, func() {
			for _, more := range []string{"--check", "--commit", "--base=geth"} {
				w.fails([]string{"rpc/server.go", "HEAD"}, "apply", "--reverse", dir, more)
			}
		})
	}
}

// A submodule that stands elsewhere is nothing that the patches touch, whether they
// are in or not.
func TestSubmodulesIgnored(t *testing.T) {
	w := newWorld(t)
	dir := w.checkoutOf("v1.0.0", true)
	sub := filepath.Join(dir, "tests", "testdata")
	write(t, filepath.Join(sub, "a"), "a")
	w.git(sub, "init", "-q", ".")
	w.git(sub, "add", ".")
	w.git(sub, "commit", "-q", "-m", "one")
	write(t, filepath.Join(dir, ".gitmodules"), "[submodule \"tests/testdata\"]\n\tpath = tests/testdata\n\turl = ./x\n")
	w.git(dir, "add", ".gitmodules", "tests/testdata")
	w.git(dir, "commit", "-q", "-m", "submodule")
	w.git(sub, "commit", "-q", "--allow-empty", "-m", "two")
	w.ok("apply", dir)
	if out := w.ok("apply", dir); !strings.Contains(out, "already applied") {
		t.Error(out)
	}
	w.ok("apply", dir, "--reverse")
}
