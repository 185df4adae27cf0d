// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A GraphQL query is checked by its library before anything is resolved, and before
// anybody asks whether its time is up. Each field is compared with each other one of the
// same level, and the library remembers every pair; fragments are followed wherever they
// are named. A query of 4000 fields (55 KB) makes 16 million entries, 1.7 GiB, and takes half
// a minute of a processor; thirty fragments that each name the next one twice are a
// thousand million fields. So fields are counted before the library sees the query.
//
// # Model
//
// A query counts as many fields as it has once every fragment is in the place of its name:
//
//	fragment A on Account { balance code }          2
//	{ block { a: account { ...A } hash } }           block, account, spread + 2, hash: 6
//
// and each fragment once more for itself. Arguments, variables, directives, aliases and
// comments count nothing. At most maxQueryFields are handed on; the memory that comparing
// them takes is held against the reply budget while the query runs.
//
// # Non-goals
//
// This is no parser: what is no GraphQL is told so by the library, as are fragments that
// name themselves. The count is right for every query that the library can parse.
const (
	maxQueryFields = 1000

	// pairSize is what the library remembers of two fields that it has compared, and of the
	// same in the other order: two entries of a map with half of its slots used.
	pairSize = 2 * 64
)

// queryCost returns the fields of the query in the body of a request, at most one more
// than may be. It is 0 for what is no query.
func queryCost(body []byte) int {
	var params struct {
		Query string `json:"query"`
	}
	if json.NewDecoder(bytes.NewReader(body)).Decode(&params) != nil {
		return 0 // upstream says so
	}
	return countFields(params.Query)
}

// queryTooLong is the answer to a query of more fields than may be, in GraphQL's form.
func queryTooLong() []byte {
	return fmt.Appendf(nil, `{"errors":[{"message":"query of more than %d fields"}]}`, maxQueryFields)
}

// queryDefinition is an operation or a fragment.
type queryDefinition struct {
	fields  int
	spreads []string
	cost    int
	state   int8 // 0: cost not known, 1: being counted, 2: known
}

// countFields returns the fields of a document with its fragments in place, saturated
// at maxQueryFields+1.
func countFields(query string) int {
	var (
		s          = queryScanner{text: query}
		fragments  = make(map[string]*queryDefinition)
		operations []*queryDefinition
		total      int
	)
	for total <= maxQueryFields { // what comes behind too many changes nothing
		def, fragment, more := s.definition()
		if !more {
			break
		}
		if fragment == "" {
			operations = append(operations, def)
			continue
		}
		total += def.fields
		if fragments[fragment] == nil {
			fragments[fragment] = def
		}
	}
	for _, def := range operations {
		if total > maxQueryFields {
			break
		}
		total += def.count(fragments)
	}
	return min(total, maxQueryFields+1)
}

// count returns the fields of a definition with its fragments in place.
func (d *queryDefinition) count(fragments map[string]*queryDefinition) int {
	if d.state == 0 {
		d.state, d.cost = 1, d.fields
		for _, name := range d.spreads {
			// One that is being counted names itself, which is no valid query.
			if f := fragments[name]; f != nil && f.state != 1 && d.cost <= maxQueryFields {
				d.cost += f.count(fragments)
			}
		}
		d.cost, d.state = min(d.cost, maxQueryFields+1), 2
	}
	return d.cost
}

// queryScanner cuts a document into tokens. A token is a name, "..." or one character;
// what is in parentheses, strings and comments is passed over.
type queryScanner struct {
	text string
	pos  int
}

// definition reads up to the brace that closes an operation or fragment. It returns false
// at the end of the document.
func (s *queryScanner) definition() (d *queryDefinition, fragment string, more bool) {
	d = new(queryDefinition)
	tok := s.next()
	if tok == "fragment" {
		tok = s.next()
		fragment = tok
	}
	for depth := 0; tok != ""; {
		switch {
		case tok == "{":
			depth++
		case tok == "}":
			if depth--; depth <= 0 {
				return d, fragment, true
			}
		case tok == "@":
			s.next()
		case depth == 0:
		case tok == "...":
			d.fields++
			if tok = s.next(); isName(tok) && tok != "on" {
				d.spreads = append(d.spreads, tok)
			} else if tok == "on" {
				s.next()
			} else {
				continue // a brace or a directive
			}
		case isName(tok):
			after := s.next()
			if after != ":" {
				d.fields++
			}
			tok = after
			continue
		}
		tok = s.next()
	}
	return d, fragment, d.fields > 0
}

func isName(tok string) bool {
	r, _ := utf8.DecodeRuneInString(tok)
	return r == '_' || unicode.IsLetter(r)
}

// next returns the next token, "" at the end.
func (s *queryScanner) next() string {
	for parens := 0; s.pos < len(s.text); {
		start := s.pos
		r, size := utf8.DecodeRuneInString(s.text[s.pos:])
		s.pos += size
		switch {
		case r == '"':
			s.string()
		case r == '#':
			if end := strings.IndexAny(s.text[s.pos:], "\r\n"); end >= 0 {
				s.pos += end
			} else {
				s.pos = len(s.text)
			}
		case r == '(':
			parens++
		case r == ')':
			parens = max(0, parens-1)
		case parens > 0 || r == ',' || unicode.IsSpace(r) || r == '\uFEFF':
		case r == '_' || unicode.IsLetter(r):
			end := strings.IndexFunc(s.text[s.pos:], func(r rune) bool {
				return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
			})
			if end < 0 {
				end = len(s.text) - s.pos
			}
			s.pos += end
			return s.text[start:s.pos]
		case strings.HasPrefix(s.text[start:], "..."):
			s.pos = start + 3
			return "..."
		default:
			return s.text[start:s.pos]
		}
	}
	return ""
}

// string passes over a string whose first quote was read. The library knows no block
// strings in queries: three quotes are an empty string and the beginning of the next one.
func (s *queryScanner) string() {
	for s.pos < len(s.text) {
		c := s.text[s.pos]
		s.pos++
		switch c {
		case '\\':
			s.pos = min(s.pos+1, len(s.text))
		case '"', '\n':
			return
		}
	}
}
