// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// hunk is one hunk of a patch file.
type hunk struct {
	name  string // patch, file and what the hunk is in
	file  string
	lines []string // with their first character
}

var hunkRE = regexp.MustCompile(`^@@ [^@]* @@ ?(.*)$`)

// splitHunks takes a patch apart. Text before the first file is its header.
func splitHunks(patch, text string) (hunks []hunk) {
	var file string
	var cur *hunk
	seen := make(map[string]int)
	flush := func() {
		if cur == nil {
			return
		}
		if seen[cur.name]++; seen[cur.name] > 1 {
			cur.name += fmt.Sprintf(" %d", seen[cur.name])
		}
		hunks, cur = append(hunks, *cur), nil
	}
	for _, line := range strings.Split(text, "\n") {
		switch m := hunkRE.FindStringSubmatch(line); {
		case strings.HasPrefix(line, "--- "), strings.HasPrefix(line, "diff "), strings.HasPrefix(line, "index "):
			flush()
		case strings.HasPrefix(line, "+++ "):
			file = strings.TrimPrefix(strings.TrimPrefix(line, "+++ "), "b/")
		case m != nil:
			flush()
			cur = &hunk{name: strings.TrimSpace("hook/" + patch + " " + file + " " + shortPlace(m[1])), file: file}
		case cur != nil && line != "" && strings.ContainsAny(line[:1], " +-"):
			cur.lines = append(cur.lines, line)
		}
	}
	flush()
	return hunks
}

// shortPlace makes "func (*handler) handleCall" handleCall.
func shortPlace(place string) string {
	f := strings.Fields(place)
	if len(f) == 0 {
		return ""
	}
	return f[len(f)-1]
}

// sides returns the hunk's text before and after the patch.
func (h hunk) sides() (before, after string) {
	for _, l := range h.lines {
		if l[0] != '+' {
			before += l[1:] + "\n"
		}
		if l[0] != '-' {
			after += l[1:] + "\n"
		}
	}
	return before, after
}

// changed returns the lines taken out and those put in.
func (h hunk) changed() (minus, plus []string) {
	for _, l := range h.lines {
		switch l[0] {
		case '-':
			minus = append(minus, l[1:])
		case '+':
			plus = append(plus, l[1:])
		}
	}
	return minus, plus
}

// hookMutants makes one of every hunk of the default series.
func hookMutants(dir, fork string) (out []*mutant, err error) {
	series, err := os.ReadFile(filepath.Join(dir, "series"))
	if err != nil {
		return nil, err
	}
	for _, name := range strings.Fields(string(series)) {
		name = strings.TrimSuffix(name, ".patch")
		text, err := os.ReadFile(filepath.Join(dir, name+".patch"))
		if err != nil {
			return nil, err
		}
		for _, h := range splitHunks(name, string(text)) {
			m, err := hookMutant(h, fork)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", h.name, err)
			}
			m.cases = hookCases[h.file]
			out = append(out, m)
		}
	}
	return out, nil
}

var (
	funcRE    = regexp.MustCompile(`^func (?:\(\w+ \*?(\w+)\) )?(\w+)\(`)
	elementRE = regexp.MustCompile(`^(\s*\w+:\s*)(.+),(\s*//.*)?$`)
	declareRE = regexp.MustCompile(`^\s*[\w, ]+ := `)
	fieldRE   = regexp.MustCompile("^\\s*\\w+\\s+[\\w.*\\[\\]]+(\\s+`[^`]*`)?(\\s*//.*)?$")
)

// hookMutant finds the way to switch a hunk off.
func hookMutant(h hunk, fork string) (*mutant, error) {
	before, after := h.sides()
	m := &mutant{name: h.name, pkg: "./" + filepath.Dir(h.file), undo: []edit{{h.file, after, before}}}
	minus, plus := h.changed()
	if len(plus) == 0 {
		return m, nil
	}
	if len(minus) == 1 && len(plus) == 1 {
		if old, renamed := funcRE.FindStringSubmatch(minus[0]), funcRE.FindStringSubmatch(plus[0]); old != nil && renamed != nil {
			e, err := bypass(fork, filepath.Dir(h.file), old[1], old[2], renamed[2], h.name, strings.Contains(plus[0], renamed[2]+"()"))
			if err != nil {
				return nil, err
			}
			m.edits = []edit{e}
			return m, nil
		}
	}
	if len(minus) == 0 && len(plus) == 1 {
		if e := elementRE.FindStringSubmatch(plus[0]); e != nil {
			line := fmt.Sprintf("%smutantOr(%q, nil, %s),", e[1], h.name, e[2])
			m.edits = []edit{{h.file, after, strings.Replace(after, plus[0], line, 1)}}
			return m, nil
		}
	}
	for _, l := range append(minus, plus...) {
		if first, _, _ := strings.Cut(strings.TrimSpace(l), " "); first == "if" || first == "return" {
			continue
		}
		if declareRE.MatchString(l) || fieldRE.MatchString(l) || strings.TrimSpace(l) == "" {
			return m, nil // has a tree of its own
		}
	}
	text := fmt.Sprintf("if mutant(%q) {\n%s} else {\n%s}\n", h.name, joined(minus), joined(plus))
	at := joined(plus)
	if strings.Count(after, at) != 1 {
		return nil, fmt.Errorf("its lines are not together: %q", after)
	}
	m.edits = []edit{{h.file, after, strings.Replace(after, at, text, 1)}}
	return m, nil
}

func joined(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}

// bypass has our wrapper of a renamed function call upstream's at once. One that takes
// nothing may have a wrapper that takes a context.
func bypass(fork, dir, recv, name, renamed, mutant string, takesNothing bool) (edit, error) {
	files, err := filepath.Glob(filepath.Join(fork, dir, "*.go"))
	if err != nil {
		return edit{}, err
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return edit{}, err
		}
		if !strings.Contains(string(src), " "+name+"(") && !strings.Contains(string(src), ") "+name+"(") {
			continue
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, src, parser.SkipObjectResolution)
		if err != nil {
			return edit{}, err
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Name.Name != name || receiver(fn) != recv || fn.Body == nil {
				continue
			}
			head := string(src[fset.Position(fn.Pos()).Offset : fset.Position(fn.Body.Lbrace).Offset+1])
			if takesNothing {
				fn.Type.Params.List = nil
			}
			call, err := forward(fn, renamed)
			if err != nil {
				return edit{}, err
			}
			rel, err := filepath.Rel(fork, path)
			if err != nil {
				return edit{}, err
			}
			return edit{rel, head, fmt.Sprintf("%s\n\tif mutant(%q) {\n%s\t}", head, mutant, call)}, nil
		}
	}
	return edit{}, fmt.Errorf("no wrapper of %s in %s", name, dir)
}

func receiver(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return ""
	}
	t := fn.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

// forward writes the call of a function with the parameters of fn.
func forward(fn *ast.FuncDecl, name string) (string, error) {
	var args []string
	for _, p := range fn.Type.Params.List {
		_, variadic := p.Type.(*ast.Ellipsis)
		for _, n := range p.Names {
			if n.Name == "_" {
				return "", fmt.Errorf("%s does not name its parameters", fn.Name.Name)
			}
			if args = append(args, n.Name); variadic {
				args[len(args)-1] += "..."
			}
		}
	}
	if fn.Recv != nil {
		if len(fn.Recv.List[0].Names) == 0 {
			return "", fmt.Errorf("%s does not name its receiver", fn.Name.Name)
		}
		name = fn.Recv.List[0].Names[0].Name + "." + name
	}
	call := fmt.Sprintf("%s(%s)", name, strings.Join(args, ", "))
	if fn.Type.Results != nil && len(fn.Type.Results.List) > 0 {
		return "\t\treturn " + call + "\n", nil
	}
	return "\t\t" + call + "\n\t\treturn\n", nil
}

// hookCases are the suite's cases that the hooks of a file are for.
var hookCases = map[string]string{
	"rpc/handler.go":        "exact-refusals,pipelined-slow-calls,ws-client-leaves",
	"rpc/http.go":           "bodies-that-stall",
	"rpc/json.go":           "exact-refusals,ws-blocks-never-read",
	"rpc/server.go":         "pipelined-slow-calls,ws-client-leaves",
	"rpc/service.go":        "exact-refusals",
	"rpc/subscription.go":   "subscriber-stops",
	"rpc/websocket.go":      "connections-per-client,ws-fragments-slow",
	"eth/filters/api.go":    "filter-flood,filter-overflow",
	"eth/filters/filter.go": "filter-flood",
	"eth/tracers/api.go":    "trace-after-leaving,block-trace",
	"graphql/graphql.go":    "graphql-same-data",
	"graphql/service.go":    "graphql-same-data",
	"node/config.go":        "exact-refusals",
	"node/node.go":          "exact-refusals,graphql-slow-calls",
	"node/rpcstack.go":      "slow-headers,h2-large-headers",
	"cmd/utils/flags.go":    "exact-refusals",

	"eth/tracers/js/goja.go":      "javascript-made-after-leaving",
	"internal/ethapi/api.go":      "access-list-after-leaving",
	"internal/ethapi/simulate.go": "simulated-returns,simulated-gap-after-leaving",
}
