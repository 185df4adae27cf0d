// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rpcguard/scripts/patchset/internal/diff"
)

// site is a place in a tree that the hooks have to know of.
type site struct {
	kind string // what it is, see siteKinds
	path string
	line int
	decl string
	text string
}

// siteKinds says why each kind matters.
var siteKinds = []struct{ kind, why string }{
	{"notifier", "a subscription: its events pass Notifier.Notify, one at a time; what one event of the node is, only a hook here can say"},
	{"server", "a server of RPC: without a guard given to it, it is stock"},
	{"entry", "an entry point for requests that goes past the guarded ones"},
	{"blocking send", "an event loop that waits for one receiver: a subscriber that leaves with its channel full stops it for all"},
	{"queue", "a list that a client makes grow and only a poll empties"},
}

// The calls that make a site. Value: the kind.
var siteCalls = map[string]string{
	"NotifierFromContext": "notifier",
	"NewServer":           "server",
	"DialInProc":          "server",
	"StartIPCEndpoint":    "server",
	"ServeCodec":          "entry",
	"ServeListener":       "entry",
	"WebsocketHandler":    "entry",
}

// drift compares a tree with the pinned release, for which every site is known:
// it lists those of the tree that the release does not have. Finding any is an
// error, so that a script notices; none means that these kinds were looked for.
func (r *repo) drift(dir string, out io.Writer) error {
	version, err := r.pin()
	if err != nil {
		return err
	}
	src, _, err := r.upstream(version)
	if err != nil {
		return err
	}
	own, err := r.load(mainBase)
	if err != nil {
		return err
	}
	ours := make(map[string]bool)
	for _, f := range own.Own {
		ours[f.Path] = true
	}
	known, _, err := sites(src, ours)
	if err != nil {
		return err
	}
	found, files, err := sites(dir, ours)
	if err != nil {
		return err
	}
	if files == 0 {
		return fmt.Errorf("%s holds no Go files", dir)
	}
	// A site is known if the release has one of that kind in the same
	// declaration; a hook renames some of these.
	key := func(s site) string {
		return s.kind + "|" + s.path + "|" + strings.ToLower(strings.TrimSuffix(s.decl, "Unguarded"))
	}
	have := make(map[string]int)
	for _, s := range known {
		have[key(s)]++
	}
	t := newTable("kind", "where", "declaration", "what")
	fresh := make(map[string]int)
	for _, s := range found {
		if have[key(s)] > 0 {
			have[key(s)]--
			continue
		}
		fresh[s.kind]++
		t.row(s.kind, fmt.Sprintf("%s:%d", s.path, s.line), s.decl, s.text)
	}
	fmt.Fprintf(out, "%s: %d Go files, %d sites, %d of them not in %s\n", dir, files, len(found), len(t.rows)-1, version)
	if len(t.rows) == 1 {
		fmt.Fprintln(out, "looked for: uses of Notifier, servers and entry points of RPC, sends of event loops that wait, lists that clients fill")
		return nil
	}
	t.print(out)
	for _, k := range siteKinds {
		if fresh[k.kind] > 0 {
			fmt.Fprintf(out, "%s: %s\n", k.kind, k.why)
		}
	}
	return fmt.Errorf("%d call sites that no hook knows; see docs/MAINTAIN.md", len(t.rows)-1)
}

// sites reads all Go files of a tree but tests, own files and other modules.
func sites(dir string, ours map[string]bool) (out []site, files int, err error) {
	err = filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if e.IsDir() {
			_, statErr := os.Stat(filepath.Join(name, "go.mod"))
			if rel != "." && (strings.HasPrefix(e.Name(), ".") || e.Name() == "vendor" || e.Name() == "build" || e.Name() == "testdata" || statErr == nil) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go") || ours[rel] || !e.Type().IsRegular() {
			return nil
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		files++
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, rel, data, parser.SkipObjectResolution)
		if err != nil {
			return errors.Join(fmt.Errorf("%s is not read", rel), err)
		}
		lines := diff.Split(string(data))
		decls := diff.Decls(rel, lines)
		add := func(kind string, pos token.Pos) {
			line := fset.Position(pos).Line
			out = append(out, site{kind, rel, line, decls[line-1], strings.TrimSpace(lines[line-1])})
		}
		scan(file, add)
		return nil
	})
	slices.SortFunc(out, func(a, b site) int {
		if c := strings.Compare(a.path, b.path); c != 0 {
			return c
		}
		return a.line - b.line
	})
	return out, files, err
}

// scan finds the sites of one file.
func scan(file *ast.File, add func(kind string, pos token.Pos)) {
	filters := file.Name.Name == "filters"
	// Sends that may give up: those in a select with another way out.
	free := make(map[ast.Stmt]bool)
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectStmt); ok && len(s.Body.List) > 1 {
			for _, c := range s.Body.List {
				if send, ok := c.(*ast.CommClause).Comm.(*ast.SendStmt); ok {
					free[send] = true
				}
			}
		}
		return true
	})
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			name := ""
			switch f := n.Fun.(type) {
			case *ast.SelectorExpr:
				name = f.Sel.Name
				if x, ok := f.X.(*ast.Ident); name == "NewServer" && (!ok || x.Name != "rpc") {
					return true // some other package's server
				}
			case *ast.Ident:
				name = f.Name
				if name == "NewServer" && file.Name.Name != "rpc" {
					return true
				}
			}
			if kind := siteCalls[name]; kind != "" {
				add(kind, n.Pos())
			}
		case *ast.FuncDecl:
			// A handler of HTTP in the packages that serve RPC.
			if n.Name.Name == "ServeHTTP" && slices.Contains([]string{"rpc", "node", "graphql"}, file.Name.Name) {
				add("entry", n.Pos())
			}
		case *ast.SendStmt:
			if filters && !free[n] {
				add("blocking send", n.Pos())
			}
		case *ast.AssignStmt:
			// f.xs = append(f.xs, ...) in a filter that is polled
			if !filters || len(n.Rhs) != 1 {
				return true
			}
			call, ok := n.Rhs[0].(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			fn, isIdent := call.Fun.(*ast.Ident)
			left, isField := n.Lhs[0].(*ast.SelectorExpr)
			if x, ok := call.Args[0].(*ast.SelectorExpr); isIdent && isField && ok && fn.Name == "append" && x.Sel.Name == left.Sel.Name {
				if id, ok := left.X.(*ast.Ident); ok && id.Name == "f" {
					add("queue", n.Pos())
				}
			}
		}
		return true
	})
}
