// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// A send holds up others if its channel comes from a loop over the receivers, and only
// what that receiver does ends the wait. In package filters a loop need not be seen: what
// is sent on there is a subscriber's, whoever calls.

// waits reports whether a send may hold up the receivers behind one that is slow.
func (s *scanner) waits(send *ast.SendStmt) bool {
	each := s.receivers(send.Chan)
	if len(each) == 0 {
		if s.pkg != "filters" {
			return false
		}
		// A channel that the function made has one reader, which it knows.
		if id, ok := send.Chan.(*ast.Ident); ok && slices.ContainsFunc(s.defs[id.Name], isMake) {
			return false
		}
	}
	return !s.givesUp(send, each)
}

// receivers are the variables of the loops around a send, as far as its channel is made
// of them. The parameters of a callback are as good as a loop's; what runs in a goroutine
// of its own holds up nobody.
func (s *scanner) receivers(channel ast.Expr) map[string]bool {
	out := make(map[string]bool)
	bind := func(e ast.Expr) {
		if id, ok := e.(*ast.Ident); ok && id.Name != "_" && s.mentions(channel, map[string]bool{id.Name: true}) {
			out[id.Name] = true
		}
	}
	for i := len(s.parents) - 1; i > 0; i-- {
		switch p := s.parents[i].(type) {
		case *ast.GoStmt, *ast.FuncDecl:
			return out
		case *ast.FuncLit:
			if call, ok := s.parents[i-1].(*ast.CallExpr); ok && call.Fun != ast.Expr(p) {
				for _, f := range p.Type.Params.List {
					for _, name := range f.Names {
						bind(name)
					}
				}
			}
		case *ast.RangeStmt:
			bind(p.Key)
			bind(p.Value)
		case *ast.ForStmt:
			if init, ok := p.Init.(*ast.AssignStmt); ok {
				for _, e := range init.Lhs {
					bind(e)
				}
			}
		}
	}
	return out
}

// givesUp reports whether a send stands in a select that goes on without its receiver: by
// a default, after a time, or when that receiver leaves. The end of the whole system is
// no way out for those who wait behind one that only reads slowly.
func (s *scanner) givesUp(send *ast.SendStmt, each map[string]bool) bool {
	if len(s.parents) < 3 {
		return false
	}
	clause, ok := s.parents[len(s.parents)-1].(*ast.CommClause)
	if !ok || clause.Comm != ast.Stmt(send) {
		return false
	}
	owner := ""
	if x, ok := send.Chan.(*ast.SelectorExpr); ok && len(each) == 0 {
		owner = types.ExprString(x.X) + "."
	}
	for _, c := range s.parents[len(s.parents)-2].(*ast.BlockStmt).List {
		from := received(c.(*ast.CommClause).Comm)
		switch {
		case c.(*ast.CommClause).Comm == nil:
			return true
		case from == nil:
		case s.isTimer(from), s.mentions(from, each), owner != "" && strings.HasPrefix(types.ExprString(from), owner):
			return true
		}
	}
	return false
}

// received is the channel that a case of a select receives from, nil if it sends.
func received(comm ast.Stmt) ast.Expr {
	var e ast.Expr
	switch c := comm.(type) {
	case *ast.ExprStmt:
		e = c.X
	case *ast.AssignStmt:
		e = c.Rhs[0]
	}
	if u, ok := e.(*ast.UnaryExpr); ok && u.Op == token.ARROW {
		return u.X
	}
	return nil
}

// isTimer reports whether a channel is one of package time's, or of a clock like it.
func (s *scanner) isTimer(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.SelectorExpr:
		return e.Sel.Name == "C"
	case *ast.CallExpr:
		f, ok := e.Fun.(*ast.SelectorExpr)
		return ok && (f.Sel.Name == "After" || f.Sel.Name == "C")
	case *ast.Ident:
		for _, d := range s.defs[e.Name] {
			if _, again := d.(*ast.Ident); !again && s.isTimer(d) {
				return true
			}
		}
	}
	return false
}

func isMake(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	f, ok := call.Fun.(*ast.Ident)
	return ok && f.Name == "make"
}

// mentions reports whether an expression is made of one of the variables, itself or by
// way of other variables of the function. What was received from a channel is made of
// nothing, as an answer to a request is no news for many; nor is what is made anew.
func (s *scanner) mentions(e ast.Expr, vars map[string]bool) bool {
	seen := make(map[string]bool)
	var in func(e ast.Expr) bool
	in = func(e ast.Expr) (found bool) {
		ast.Inspect(e, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr: // not its field's name
				found = found || in(n.X)
				return false
			case *ast.UnaryExpr:
				return n.Op != token.ARROW
			case *ast.CallExpr:
				return !isMake(n)
			case *ast.Ident:
				if vars[n.Name] {
					found = true
				} else if !seen[n.Name] {
					seen[n.Name] = true
					for _, d := range s.defs[n.Name] {
						found = found || in(d)
					}
				}
			}
			return !found
		})
		return found
	}
	return in(e)
}

// definitions tells for each variable of a function what it is defined by.
func definitions(f *ast.FuncDecl) map[string][]ast.Expr {
	defs := make(map[string][]ast.Expr)
	define := func(left ast.Expr, right []ast.Expr, i int) {
		id, ok := left.(*ast.Ident)
		if !ok || len(right) == 0 {
			return
		}
		defs[id.Name] = append(defs[id.Name], right[min(i, len(right)-1)])
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				for i, l := range n.Lhs {
					define(l, n.Rhs, i)
				}
			}
		case *ast.ValueSpec:
			for i, l := range n.Names {
				define(l, n.Values, i)
			}
		}
		return true
	})
	return defs
}
