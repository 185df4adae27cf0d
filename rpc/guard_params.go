// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"bytes"
	"strings"
)

// What the parameters of a call say about its cost, for the few methods where that
// matters.

// narrowLogBlocks is how many blocks a log query may span and still be normal.
const narrowLogBlocks = 10

// narrowLogQuery reports whether a log query looks at one block or at most
// narrowLogBlocks of them. When it cannot tell, it reports false: the cost of a
// mistake is a query that waits for a heavy permit, not one that runs without.
func narrowLogQuery(params []byte) bool {
	s := jsonScanner{data: params}
	if !s.open('[') || !s.open('{') {
		return true // will fail to parse as a query, which costs nothing
	}
	var from, to, hash []byte
	for s.more('}') {
		// Members are matched as encoding/json does it: case is folded and the last
		// one of a name counts.
		key := s.value()
		s.skip(':')
		value := s.value()
		switch {
		case bytes.IndexByte(key, '\\') >= 0:
			return false // an escaped name may be any of these
		case bytes.EqualFold(key, []byte(`"fromBlock"`)):
			from = value
		case bytes.EqualFold(key, []byte(`"toBlock"`)):
			to = value
		case bytes.EqualFold(key, []byte(`"blockHash"`)):
			hash = value
		}
	}
	if s.broken {
		return false
	}
	if hash != nil && !bytes.Equal(hash, []byte("null")) {
		return true
	}
	first, last := parseBound(from), parseBound(to)
	switch {
	case first.kind == boundOther || last.kind == boundOther:
		return false
	case first.kind == boundHead:
		return true // nothing lies between the head and anything later
	case first.kind == boundNumber && last.kind == boundNumber:
		return last.number < first.number || last.number-first.number < narrowLogBlocks
	default: // a number, or a named block behind the head, up to the head
		return first.kind == boundNamed && bytes.Equal(first.name, last.name)
	}
}

type boundKind uint8

const (
	boundHead   boundKind = iota // missing, null, latest or pending
	boundNumber                  // a number, earliest included
	boundNamed                   // safe or finalized
	boundOther                   // anything else
)

type logBound struct {
	kind   boundKind
	number uint64
	name   []byte
}

func parseBound(value []byte) logBound {
	if value == nil || bytes.Equal(value, []byte("null")) {
		return logBound{kind: boundHead}
	}
	if len(value) < 2 || value[0] != '"' {
		return logBound{kind: boundOther}
	}
	text := value[1 : len(value)-1]
	switch string(text) {
	case "latest", "pending":
		return logBound{kind: boundHead}
	case "earliest":
		return logBound{kind: boundNumber}
	case "safe", "finalized":
		return logBound{kind: boundNamed, name: text}
	}
	if len(text) < 3 || len(text) > 18 || text[0] != '0' || text[1] != 'x' && text[1] != 'X' {
		return logBound{kind: boundOther}
	}
	var n uint64
	for _, c := range text[2:] {
		switch {
		case c >= '0' && c <= '9':
			n = n<<4 | uint64(c-'0')
		case c >= 'a' && c <= 'f':
			n = n<<4 | uint64(c-'a'+10)
		case c >= 'A' && c <= 'F':
			n = n<<4 | uint64(c-'A'+10)
		default:
			return logBound{kind: boundOther}
		}
	}
	return logBound{kind: boundNumber, number: n}
}

// blobParams is the length from which on the parameters of a raw transaction may hold a
// blob, which has 128 KiB, two digits a byte. The pool takes nothing as long without one.
// Upstream computes 128 proofs for each blob of the form that was used before Osaka, half
// a second on all processors, before it looks at anything else in the transaction.
const blobParams = 256 << 10

// isRawTransaction reports whether a method takes an encoded transaction.
func isRawTransaction(method string) bool {
	return method == "eth_sendRawTransaction" || method == "eth_sendRawTransactionSync"
}

// readsPendingBlock reports whether a call reads the block that would be next. The node
// makes it for the first one who asks, for up to two seconds, and copies its state for each:
// 7 MB for a transaction with 41000 logs. With a backslash in the parameters it cannot tell
// and reports true: nobody writes block tags that way but to hide one.
//
// The number of an account's transactions comes from the pool, and no logs are pending.
func readsPendingBlock(method string, params []byte) bool {
	if !strings.HasPrefix(method, "eth_get") && !strings.HasPrefix(method, "debug_getRaw") && method != "eth_feeHistory" ||
		method == "eth_getTransactionCount" || method == "eth_getLogs" {
		return false
	}
	return bytes.Contains(params, []byte(`"pending"`)) || bytes.IndexByte(params, '\\') >= 0
}

// hasPercentiles reports whether the third parameter of eth_feeHistory asks for
// percentiles, which needs the receipts of every block in the range.
func hasPercentiles(params []byte) bool {
	s := jsonScanner{data: params}
	if !s.open('[') {
		return false
	}
	for i := 0; s.more(']'); i++ {
		if i < 2 {
			s.value()
			continue
		}
		return s.open('[') && s.more(']')
	}
	return false
}

// jsonScanner walks a valid JSON text without decoding it. On text that is not
// valid it stops early and says broken; it never reads beyond the end.
type jsonScanner struct {
	data   []byte
	at     int
	inside bool // an element of the innermost open value was taken
	broken bool
}

func (s *jsonScanner) space() {
	for s.at < len(s.data) {
		switch s.data[s.at] {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return
		}
	}
}

// skip takes one byte if it is next.
func (s *jsonScanner) skip(c byte) bool {
	s.space()
	if s.at < len(s.data) && s.data[s.at] == c {
		s.at++
		return true
	}
	return false
}

// open enters an array or object if one begins here.
func (s *jsonScanner) open(bracket byte) bool {
	s.inside = false
	return s.skip(bracket)
}

// more reports whether the open value has another element, and takes the comma
// in front of it or the bracket that closes the value.
func (s *jsonScanner) more(bracket byte) bool {
	if s.skip(bracket) {
		return false
	}
	if s.inside && !s.skip(',') || s.at >= len(s.data) {
		s.broken = true
		return false
	}
	s.inside = true
	return true
}

// value takes the value that begins here and returns its text.
func (s *jsonScanner) value() []byte {
	s.space()
	start, depth := s.at, 0
	for s.at < len(s.data) {
		switch c := s.data[s.at]; c {
		case '"':
			s.str()
		case '{', '[':
			depth++
			s.at++
			continue
		case '}', ']':
			depth--
			s.at++
		case ' ', '\t', '\n', '\r', ',', ':':
			s.at++
			continue
		default:
			for s.at++; s.at < len(s.data) && !endsLiteral(s.data[s.at]); s.at++ {
			}
		}
		if depth <= 0 {
			return s.data[start:s.at]
		}
	}
	s.broken = true
	return s.data[start:]
}

// str takes the string that begins here, quotes included.
func (s *jsonScanner) str() {
	for s.at++; s.at < len(s.data); s.at++ {
		switch s.data[s.at] {
		case '\\':
			s.at++
		case '"':
			s.at++
			return
		}
	}
	s.at = min(s.at, len(s.data))
	s.broken = true
}

func endsLiteral(c byte) bool {
	switch c {
	case ' ', '\t', '\n', '\r', ',', ':', ']', '}':
		return true
	}
	return false
}
