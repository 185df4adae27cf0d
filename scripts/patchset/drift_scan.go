// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"path"
	"slices"
	"strconv"
)

// The uses of names that make a site wherever they stand. Value: the kind.
var siteNames = map[string]string{
	"NotifierFromContext": "notifier",
	"DialInProc":          "server",
	"StartIPCEndpoint":    "server",
	"RPCHandler":          "server", // the in-process server, which is trusted
	"ServeCodec":          "entry",
	"ServeListener":       "entry",
	"WebsocketHandler":    "entry",
	"StartHTTPEndpoint":   "http",
}

// What only package rpc's name of that sound makes a site.
var rpcNames = map[string]string{
	"NewServer": "server",
	"NewID":     "queue", // in package filters the lists themselves are looked for
}

// What serves HTTP in package net/http.
var httpNames = []string{"ListenAndServe", "ListenAndServeTLS", "Serve", "ServeTLS", "Server"}

const rpcPackage = module + "/rpc"

// scanner finds the sites of one file. It knows no types: what a name stands for is
// told by the file's imports, and who receives from a channel by how it is come by.
type scanner struct {
	names   map[string]string // packages by the name that they have here; "." for those without
	pkg     string            // the file's own
	serves  bool              // the package has to do with RPC
	add     func(kind string, pos token.Pos)
	parents []ast.Node
	defs    map[string][]ast.Expr // what the function's variables were defined by
}

// imports tells the packages of a file by the name that they have in it.
func imports(file *ast.File) map[string]string {
	names := make(map[string]string)
	for _, s := range file.Imports {
		p, err := strconv.Unquote(s.Path.Value)
		if err != nil {
			continue
		}
		name := path.Base(p)
		if s.Name != nil {
			name = s.Name.Name
		}
		if name == "." && p != rpcPackage {
			continue // of several only this one matters
		}
		names[name] = p
	}
	return names
}

// scan goes through a file.
func (s *scanner) scan(file *ast.File) {
	s.names, s.pkg = imports(file), file.Name.Name
	ast.Inspect(file, func(n ast.Node) bool {
		if n == nil {
			s.parents = s.parents[:len(s.parents)-1]
			return true
		}
		switch n := n.(type) {
		case *ast.FuncDecl:
			s.defs = definitions(n)
			if s.serves && n.Recv != nil && n.Name.Name == "ServeHTTP" {
				s.add("entry", n.Pos())
			}
		case *ast.SelectorExpr:
			s.name(n.Sel.Name, n)
		case *ast.CallExpr:
			if id, ok := n.Fun.(*ast.Ident); ok {
				s.name(id.Name, id)
			}
		case *ast.SendStmt:
			if s.waits(n) {
				s.add("blocking send", n.Pos())
			}
		case *ast.AssignStmt:
			if s.pkg == "filters" && grows(n) {
				s.add("queue", n.Pos())
			}
		}
		s.parents = append(s.parents, n)
		return true
	})
}

// name looks at a use of a name: pkg.Name, x.Name, or a call of Name itself.
func (s *scanner) name(name string, n ast.Expr) {
	from := ""
	switch n := n.(type) {
	case *ast.Ident:
		if from = s.names["."]; s.pkg == "rpc" {
			from = rpcPackage
		}
	case *ast.SelectorExpr:
		if x, ok := n.X.(*ast.Ident); ok {
			from = s.names[x.Name]
		}
		// Of a value of whatever type, in a package that has to do with RPC.
		if s.serves && name == "ServeHTTP" {
			s.add("entry", n.Pos())
		}
	}
	if kind := siteNames[name]; kind != "" {
		s.add(kind, n.Pos())
	}
	if kind := rpcNames[name]; kind != "" && from == rpcPackage && (kind != "queue" || s.pkg != "filters") {
		s.add(kind, n.Pos())
	}
	if s.serves && from == "net/http" && slices.Contains(httpNames, name) {
		s.add("http", n.Pos())
	}
}

// grows reports whether a statement is x.y = append(x.y, ...).
func grows(n *ast.AssignStmt) bool {
	if len(n.Lhs) != 1 || len(n.Rhs) != 1 {
		return false
	}
	call, ok := n.Rhs[0].(*ast.CallExpr)
	if !ok || len(call.Args) == 0 {
		return false
	}
	fn, ok := call.Fun.(*ast.Ident)
	_, field := n.Lhs[0].(*ast.SelectorExpr)
	return ok && field && fn.Name == "append" && types.ExprString(n.Lhs[0]) == types.ExprString(call.Args[0])
}
