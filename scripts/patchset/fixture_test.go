// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The synthetic upstream: two files, three releases. In v1.1.0 everything moved
// down, v1.2.0 lost a function whose lines stand in its neighbour as well, v1.3.0
// has one more file, of which v1.4.0 lost lines between two hunks, and v0.9.0 is an older kind of tree that only base "old" fits.
const (
	servers = "package rpc\n\n// Server serves.\ntype Server struct {\n\trun bool\n}\n\nfunc (s *Server) open() {\n\ts.run = true\n}\n\nfunc (s *Server) reopen() {\n\ts.run = true\n}\n"
	handler = "package rpc\n\n// handle handles.\nfunc handle() int {\n\tone()\n\ttwo()\n\treturn 2\n}\n\nfunc one() {}\nfunc two() {}\n"
	pair    = "package rpc\n\nfunc pair() {\n\tone()\n\ttwo()\n\n\ttwo()\n\tthree()\n}\n"
	api     = "package filters\n\nfunc (a *API) Hashes(f *filter, h int) {\n\tf.hashes = append(f.hashes, h)\n}\n"
	gomod   = "module github.com/ethereum/go-ethereum\n\ngo 1.25\n"
)

func releases() map[string]map[string]string {
	moved := strings.Replace(servers, "package rpc\n", "package rpc\n\n// More was written here.\n// And here.\n\nvar more = 1\n", 1)
	lost := strings.Replace(servers, "func (s *Server) open() {\n\ts.run = true\n}\n\n", "", 1)
	old := strings.Replace(servers, "\trun bool\n", "\tis bool\n", 1)
	return map[string]map[string]string{
		"v1.0.0": {"go.mod": gomod, "rpc/server.go": servers, "rpc/handler.go": handler, "README": "crlf\r\nline\r\n", ".gitattributes": "* text=auto\n", ".gitignore": "*.log\n", "x.log": "kept\n", "eth/filters/api.go": api},
		"v1.1.0": {"go.mod": gomod, "rpc/server.go": moved, "rpc/handler.go": handler},
		"v1.2.0": {"go.mod": gomod, "rpc/server.go": lost, "rpc/handler.go": handler},
		"v1.3.0": {"go.mod": gomod, "rpc/server.go": servers, "rpc/handler.go": handler, "rpc/pair.go": pair},
		"v1.4.0": {"go.mod": gomod, "rpc/server.go": servers, "rpc/handler.go": handler, "rpc/pair.go": strings.Replace(pair, "\ttwo()\n\n", "", 1)},
		"v0.9.0": {"go.mod": strings.Replace(gomod, "1.25", "1.20", 1), "rpc/server.go": strings.ReplaceAll(old, "s.run", "s.is"), "rpc/handler.go": handler},
	}
}

// Three patches: a field, a line in a method that has a twin, a rename with an
// own line below it in the file that the first one does not touch.
func patchFiles() map[string]string {
	head := func(subject, hooks string) string {
		return "Subject: rpc: " + subject + "\nReason: a test needs it,\n  and says so\nHooks: " + hooks + "\nUpstream-Status: not offered\n---\n"
	}
	return map[string]string{
		"field": head("keep a guard", "rpc/server.go Server") +
			"diff --git a/rpc/server.go b/rpc/server.go\n--- a/rpc/server.go\n+++ b/rpc/server.go\n@@ -5,2 +5,3 @@ type Server\n \trun bool\n+\tguard *Guard\n }\n",
		"open": head("tell the guard", "rpc/server.go (*Server).open") +
			"diff --git a/rpc/server.go b/rpc/server.go\n--- a/rpc/server.go\n+++ b/rpc/server.go\n@@ -10,2 +10,3 @@ func (*Server) open\n \ts.run = true\n+\ts.guard.note()\n }\n",
		"call": head("wrap the handler", "rpc/handler.go handle") +
			"diff --git a/rpc/handler.go b/rpc/handler.go\n--- a/rpc/handler.go\n+++ b/rpc/handler.go\n@@ -3,3 +3,3 @@ func handle\n // handle handles.\n-func handle() int {\n+func handleUnguarded() int {\n \tone()\n",
	}
}

const (
	guardGo = "// A licence.\n\npackage rpc\n\n// Guard guards.\ntype Guard struct{}\n\nfunc (g *Guard) note() {}\n"
	callGo  = "// A licence.\n\npackage rpc\n\nfunc handle() int { return handleUnguarded() }\n"
)

// world is a repository like this one with the patches above, and a module
// proxy that has the releases.
type world struct {
	t   *testing.T
	dir string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t, filepath.Join(t.TempDir(), "repo")}
	proxy := filepath.Join(t.TempDir(), "proxy")
	for version, files := range releases() {
		var buf bytes.Buffer
		z := zip.NewWriter(&buf)
		for _, name := range slices.Sorted(maps.Keys(files)) {
			f, err := z.Create(module + "@" + version + "/" + name)
			if err == nil {
				_, err = f.Write([]byte(files[name]))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		at := filepath.Join(proxy, filepath.FromSlash(module), "@v", version)
		write(t, at+".zip", buf.String())
		write(t, at+".mod", gomod)
		write(t, at+".info", fmt.Sprintf(`{"Version":%q}`, version))
	}
	t.Setenv("GOPROXY", "file://"+filepath.ToSlash(proxy))
	t.Setenv("GOSUMDB", "off")
	t.Setenv("GOFLAGS", "-modcacherw")
	t.Setenv("GOMODCACHE", t.TempDir())
	// Nothing of the developer's own configuration may matter.
	home, err := os.MkdirTemp("", "home")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) }) // the go command may still be writing its counters
	t.Setenv("HOME", home)
	t.Setenv("GIT_DIR", "/nowhere")

	w.write("go.mod", "// The pin.\nmodule rpcguard\n\ngo 1.25\n\nignore (\n\t./build\n\t./patches\n\t./rpc\n)\n\nrequire "+module+" v1.0.0\n")
	w.write("use.go", "package rpcguard\n\nimport _ \""+module+"/rpc\"\n")
	w.write(".gitignore", "/build/\n*.tmp\n")
	w.write("rpc/guard.go", guardGo)
	w.write("rpc/guard_call.go", callGo)
	w.write("rpc/ignored.tmp", "no file of ours")
	w.write("patches/series", "# the order\nfield\nopen\ncall\n")
	for name, text := range patchFiles() {
		w.write("patches/"+name+".patch", text)
	}
	w.git(w.dir, "init", "-q", ".")
	w.git(w.dir, "add", ".")
	t.Chdir(w.dir)

	if out, err := exec.Command("go", "mod", "tidy").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(w.read("go.sum"), module+" v1.0.0 h1:") {
		t.Fatalf("go.sum:\n%s", w.read("go.sum"))
	}
	return w
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (w *world) write(name, text string) { w.t.Helper(); write(w.t, filepath.Join(w.dir, name), text) }

func (w *world) read(name string) string {
	w.t.Helper()
	data, err := os.ReadFile(filepath.Join(w.dir, name))
	if err != nil {
		w.t.Fatal(err)
	}
	return string(data)
}

// edit replaces text that has to be there once.
func (w *world) edit(name, old, with string) {
	w.t.Helper()
	text := w.read(name)
	if strings.Count(text, old) != 1 {
		w.t.Fatalf("%s: %q stands %d times in\n%s", name, old, strings.Count(text, old), text)
	}
	w.write(name, strings.Replace(text, old, with, 1))
}

func (w *world) git(dir string, args ...string) string {
	w.t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=somebody", "-c", "user.email=some@body", "-c", "core.autocrlf=false", "-c", "core.fsync=none"}, args...)...)
	cmd.Dir = dir
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "GIT_") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// ok runs the tool and wants success; fails wants the given words in the error.
func (w *world) ok(args ...string) string {
	w.t.Helper()
	var out, errs bytes.Buffer
	if code := run(args, &out, &errs); code != 0 {
		w.t.Fatalf("patchset %v: exit %d\n%s%s", args, code, out.String(), errs.String())
	}
	return out.String()
}

func (w *world) fails(words []string, args ...string) {
	w.t.Helper()
	var out, errs bytes.Buffer
	if code := run(args, &out, &errs); code == 0 {
		w.t.Fatalf("patchset %v: succeeded\n%s", args, out.String())
	}
	for _, word := range words {
		if !strings.Contains(errs.String(), word) {
			w.t.Errorf("patchset %v: the error does not say %q:\n%s", args, word, errs.String())
		}
	}
}

// checkoutOf writes a release into a directory, as a git repository or plain.
func (w *world) checkoutOf(version string, git bool) string {
	w.t.Helper()
	dir := filepath.Join(w.t.TempDir(), "geth")
	for name, text := range releases()[version] {
		write(w.t, filepath.Join(dir, name), text)
	}
	if git {
		w.git(dir, "init", "-q", ".")
		w.git(dir, "add", "-f", ".")
		w.git(dir, "commit", "-q", "-m", "upstream")
	}
	return dir
}

// snapshot reads a directory, git's own files left out.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		if e.Name() == ".git" {
			return filepath.SkipDir
		}
		rel, _ := filepath.Rel(dir, name)
		switch {
		case e.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(name)
			out[rel] = "-> " + to
			return err
		case e.Type().IsRegular():
			data, err := os.ReadFile(name)
			out[rel] = string(data)
			return err
		}
		out[rel] = "dir"
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// same runs f and wants a directory byte for byte as before.
func (w *world) same(dir string, f func()) {
	w.t.Helper()
	before := snapshot(w.t, dir)
	f()
	if after := snapshot(w.t, dir); !maps.Equal(before, after) {
		w.t.Errorf("%s changed:\nbefore %v\nafter  %v", dir, before, after)
	}
}
