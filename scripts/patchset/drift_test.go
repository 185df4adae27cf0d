// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// What a fork has and the pinned release has not is listed, by kind.
func TestDrift(t *testing.T) {
	w := newWorld(t)
	dir := w.checkoutOf("v1.0.0", false)
	if out := w.ok("drift", dir); !strings.Contains(out, "0 of them not in v1.0.0") || !strings.Contains(out, "looked for, by name") {
		t.Error(out)
	}
	// es.tell is the loop's own channel, and es.quit ends its reader, so that this select
	// gives up; a subscriber's channel (f.votes) in its place does not, see below.
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
	write(t, dir+"/cmd/own/main.go", "package main\n\nimport \""+module+"/rpc\"\n\nfunc main() {\n\tsrv := rpc.NewServer()\n\tother.NewServer()\n\tgo srv.ServeCodec(nil, 0)\n}\n")
	write(t, dir+"/eth/filters/own_test.go", "package filters\n\nfunc f() { c <- 1 }\n")
	out, errs := new(strings.Builder), new(strings.Builder)
	if run([]string{"drift", dir}, out, errs) == 0 {
		t.Error("new call sites are no error")
	}
	if !strings.Contains(errs.String(), "5 call sites") {
		t.Errorf("%s%s", out, errs)
	}
	for _, word := range []string{"eth/filters/own.go:4", "func (*API) Votes", "eth/filters/own.go:10", "blocking send: ", "eth/filters/own.go:17", "queue: ", "cmd/own/main.go:6", "server: ", "cmd/own/main.go:8", "entry: "} {
		if !strings.Contains(out.String(), word) {
			t.Errorf("drift does not say %q:\n%s", word, out)
		}
	}
	w.fails([]string{"no Go files"}, "drift", t.TempDir())
}

// Each kind by its forms, and what is none of them. A line is listed if it ends in a
// comment that names the kind.
func TestDriftForms(t *testing.T) {
	files := map[string]string{
		"cmd/geth/x.go": `package main

import (
	"net/http"

	gethrpc "` + module + `/rpc"
	"example.org/rpc"
)

func open(stack *node.Node) {
	srv, _ := stack.RPCHandler() // server
	http.ListenAndServe(":9", srv) // http
	f := gethrpc.NewServer // server
	rpc.NewServer()
	id := gethrpc.NewID() // queue
	node.StartHTTPEndpoint(":9", srv) // http
}

func (m *mine) ServeHTTP(w http.ResponseWriter, r *http.Request) { // entry
	m.srv.ServeHTTP(w, r) // entry
}
`,
		"cmd/geth/y.go":       "package main\n\nimport web \"net/http\"\n\nvar s = web.Server{} // http\n",
		"cmd/geth/build/z.go": "package build\n\nimport . \"" + module + "/rpc\"\n\nvar s = NewServer() // server\n",
		"metrics/x.go":        "package metrics\n\nimport \"net/http\"\n\nfunc (m *m) ServeHTTP() { http.ListenAndServe() }\n",
		"eth/downloader/x.go": `package downloader

func tell(v any) {
	for c := range subs {
		c <- v // blocking send
		go func() { c <- v }()
		func() { c <- v }() // blocking send
	}
	for i := 0; i < len(subs); i++ {
		s := subs[i]
		select {
		case s.news <- v: // blocking send
		case <-quit:
		}
		select {
		case s.news <- v:
		case <-s.gone:
		}
	}
	after := time.After(limit)
	for _, s := range subs {
		select {
		case s.news <- v:
		default:
		}
		select {
		case s.news <- v:
		case <-after:
		}
		select {
		case s.news <- v: // blocking send
		case <-ctx.Done():
		case other <- v:
		}
		done <- s
	}
	subs.Range(func(k, _ any) bool {
		k.(chan any) <- v // blocking send
		return true
	})
	for i := range n {
		errs := make(chan error, i)
		req := <-requests
		req.answer <- v
		errs <- nil
		xs.list = append(xs.list, v)
	}
}
`,
		"eth/filters/x.go": `package filters

func (es *EventSystem) vote(f *sub, v Vote, errc chan error) {
	select {
	case f.votes <- v: // blocking send
	case <-es.quit:
	}
	select {
	case f.votes <- v:
	case <-f.err:
	}
	filt.hashes = append(filt.hashes, v) // queue
	api.filters[id].hashes = append(api.filters[id].hashes, v) // queue
	hashes = append(hashes, v)
	filt.hashes = append(other.hashes, v)
	c := make(chan error)
	c <- nil
	errc <- nil // blocking send
}
`,
	}
	dir := t.TempDir()
	want := make(map[string]bool)
	for name, text := range files {
		write(t, filepath.Join(dir, name), text)
		for i, line := range strings.Split(text, "\n") {
			if _, kind, ok := strings.Cut(line, "// "); ok {
				want[fmt.Sprintf("%s:%d %s", name, i+1, kind)] = true
			}
		}
	}
	v, err := surveyTree(dir, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range v.sites {
		at := fmt.Sprintf("%s:%d %s", s.path, s.line, s.kind)
		if !want[at] {
			t.Errorf("listed: %s: %s", at, s.text)
		}
		delete(want, at)
	}
	for at := range want {
		t.Errorf("not listed: %s", at)
	}
}

// What is left out is told.
func TestDriftTellsWhatItSkips(t *testing.T) {
	w := newWorld(t)
	dir := w.checkoutOf("v1.0.0", false)
	write(t, dir+"/cmd/keeper/go.mod", "module keeper\n")
	write(t, dir+"/vendor/a/a.go", "package a\n")
	out := w.ok("drift", dir)
	for _, word := range []string{"not looked into: cmd/keeper, a module of its own\n", "not looked into: vendor\n"} {
		if !strings.Contains(out, word) {
			t.Errorf("drift does not say %q:\n%s", word, out)
		}
	}
}

// A site that a hook took out is no credit for one that a fork puts into its place.
func TestDriftOfPatchedTree(t *testing.T) {
	w := newWorld(t)
	w.write("patches/series", "field\nopen\ncall\nlists\n")
	w.write("patches/lists.patch", `Subject: eth/filters: bound the lists
Reason: a test needs it
Hooks: eth/filters/api.go (*API).Hashes
Upstream-Status: not offered
---
diff --git a/eth/filters/api.go b/eth/filters/api.go
--- a/eth/filters/api.go
+++ b/eth/filters/api.go
@@ -3,3 +3,3 @@ func (*API) Hashes
 func (a *API) Hashes(f *filter, h int) {
-	f.hashes = append(f.hashes, h)
+	f.rpcguardAdd(h)
 }
`)
	dir := w.checkoutOf("v1.0.0", false)
	w.ok("drift", dir)
	w.ok("apply", dir)
	w.ok("drift", dir)
	name := filepath.Join(dir, "eth", "filters", "api.go")
	text := snapshot(t, dir)["eth/filters/api.go"]
	write(t, name, strings.Replace(text, "\tf.rpcguardAdd(h)\n", "\tf.rpcguardAdd(h)\n\tf.more = append(f.more, h)\n", 1))
	w.fails([]string{"1 call site"}, "drift", dir)
}
