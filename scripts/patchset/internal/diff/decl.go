// SPDX-License-Identifier: LGPL-3.0-or-later

package diff

import (
	"go/scanner"
	"go/token"
	"strings"
)

// Decls names, for every line of a Go file, the top-level declaration that the
// line belongs to, its doc comment included: "func name", "func (*recv) name",
// "type name", "var name", "const name" or "import". Lines between
// declarations have the empty name, as have all lines of other files.
//
// It works on tokens and never fails: a file in which half of a series is
// applied has to be read as well, and it need not parse.
func Decls(path string, lines []string) []string {
	names := make([]string, len(lines))
	if !strings.HasSuffix(path, ".go") {
		return names
	}
	var (
		src  = []byte(Join(lines))
		fset = token.NewFileSet()
		file = fset.AddFile("", fset.Base(), len(src))
		s    scanner.Scanner
	)
	s.Init(file, src, func(token.Position, string) {}, 0)

	mark := func(from, to int, name string) {
		for i := from - 1; i > 0 && strings.HasPrefix(lines[i-1], "//"); i-- {
			from--
		}
		for i := max(from, 1); i <= to && i <= len(lines); i++ {
			names[i-1] = name
		}
	}
	next := func() (int, token.Token, string) {
		pos, tok, lit := s.Scan()
		return file.Line(pos), tok, lit
	}
	// skip reads on to the semicolon that ends what has begun at depth 0, or to
	// the parenthesis that closes the group around it; it returns that line.
	skip := func(tok token.Token, line int) (int, token.Token) {
		depth := 0
		for {
			switch tok {
			case token.LPAREN, token.LBRACE, token.LBRACK:
				depth++
			case token.RPAREN, token.RBRACE, token.RBRACK:
				if depth--; depth < 0 {
					return line, tok
				}
			case token.SEMICOLON:
				if depth == 0 {
					return line, tok
				}
			case token.EOF:
				return line, tok
			}
			line, tok, _ = next()
		}
	}
	for {
		from, tok, lit := next()
		switch tok {
		case token.EOF:
			return names
		case token.FUNC:
			line, tok, lit := next()
			name := "func "
			if tok == token.LPAREN {
				recv := ""
				for tok != token.RPAREN && tok != token.EOF {
					line, tok, lit = next()
					switch {
					case tok == token.MUL:
						recv = "*"
					case tok == token.IDENT && strings.HasPrefix(recv, "*"):
						recv = "*" + lit
					case tok == token.IDENT:
						recv = lit
					case tok == token.LBRACK: // type parameters
						for tok != token.RBRACK && tok != token.EOF {
							line, tok, _ = next()
						}
					}
				}
				name += "(" + recv + ") "
				line, tok, lit = next()
			}
			name += lit
			to, _ := skip(tok, line)
			mark(from, to, name)
		case token.IMPORT:
			line, tok, _ := next()
			to, _ := skip(tok, line)
			mark(from, to, "import")
		case token.TYPE, token.VAR, token.CONST:
			kind := lit
			line, tok, lit := next()
			if tok != token.LPAREN {
				to, _ := skip(tok, line)
				mark(from, to, kind+" "+lit)
				continue
			}
			mark(from, line, kind)
			for tok != token.EOF {
				line, tok, lit = next()
				if tok == token.RPAREN {
					mark(line, line, kind)
					break
				}
				to, end := skip(tok, line)
				names := kind + " " + lit
				markSpec(lines, mark, line, to, names)
				if end == token.RPAREN {
					break
				}
			}
		}
	}
}

// markSpec marks one entry of a parenthesised group and the indented comment
// above it.
func markSpec(lines []string, mark func(int, int, string), from, to int, name string) {
	for from > 1 && strings.HasPrefix(strings.TrimSpace(lines[from-2]), "//") {
		from--
	}
	mark(from, to, name)
}
