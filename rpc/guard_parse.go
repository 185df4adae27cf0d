// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"bytes"
	"encoding/json"
)

// parseMessage stands in front of upstream's function of that name. Upstream decodes
// each string of a message by reflection, with a decoder made for it. Nearly all messages
// are as plain as
//
//	{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber","params":[]}
//
// and need no decoder: members of these four names, each at most once, in any order, and
// strings without escapes. Such a message is cut into its parts in one pass, and the
// messages of a batch lie in pieces of up to 64. All others, one in a batch being enough, go
// to upstream, so that what a name in capitals, a name given twice or a bad escape means
// is upstream's business, and stays so from release to release.
//
// The bytes are valid JSON, as upstream demands: whatever is not as expected is unusual
// then, not wrong. Nothing is kept but slices of raw, which is what upstream keeps too.
func parseMessage(raw json.RawMessage) ([]*jsonrpcMessage, bool) {
	p := plainParser{data: raw}
	p.space()
	if p.next('[') {
		if msgs := p.batch(); msgs != nil && p.atEnd() {
			return msgs, true
		}
	} else if msg := new(jsonrpcMessage); p.message(msg) && p.atEnd() {
		return []*jsonrpcMessage{msg}, false
	}
	return parseMessageUnguarded(raw)
}

// plainParser reads valid JSON from left to right. Its methods return false where the
// message is not a plain one.
type plainParser struct {
	data []byte
	pos  int
}

// slabMessages is how many messages of a batch lie in one piece: a few KB.
const slabMessages = 64

// batch reads what follows the bracket. It returns nil if one of the messages is not
// plain, also if there is none.
func (p *plainParser) batch() (msgs []*jsonrpcMessage) {
	var slab []jsonrpcMessage
	for {
		if len(slab) == 0 {
			// As many as there may be, by the length of the shortest message of use.
			slab = make([]jsonrpcMessage, min(slabMessages, 1+(len(p.data)-p.pos)/40))
		}
		p.space()
		if !p.message(&slab[0]) {
			return nil
		}
		msgs, slab = append(msgs, &slab[0]), slab[1:]
		p.space()
		switch {
		case p.next(','):
		case p.next(']'):
			return msgs
		default:
			return nil
		}
	}
}

// message reads an object into msg, which is of no use if it returns false.
func (p *plainParser) message(msg *jsonrpcMessage) bool {
	if !p.next('{') {
		return false
	}
	for {
		p.space()
		key, ok := p.text()
		if !ok {
			return false
		}
		p.space()
		if !p.next(':') {
			return false
		}
		p.space()
		switch string(key) {
		case "jsonrpc":
			version, ok := p.text()
			if !ok || msg.Version != "" || string(version) != vsn {
				return false
			}
			msg.Version = vsn
		case "method":
			method, ok := p.text()
			if !ok || msg.Method != "" {
				return false
			}
			msg.Method = string(method)
		case "id":
			if msg.ID != nil {
				return false
			}
			msg.ID = p.value()
		case "params":
			if msg.Params != nil {
				return false
			}
			msg.Params = p.value()
		default:
			return false
		}
		p.space()
		switch {
		case p.next(','):
		case p.next('}'):
			return true
		default:
			return false
		}
	}
}

func (p *plainParser) space() {
	for p.pos < len(p.data) {
		switch p.data[p.pos] {
		case ' ', '\t', '\r', '\n':
			p.pos++
		default:
			return
		}
	}
}

// atEnd reports whether there is nothing more: a reader led astray would stop early.
func (p *plainParser) atEnd() bool {
	p.space()
	return p.pos == len(p.data)
}

// next takes c if it is there.
func (p *plainParser) next(c byte) bool {
	if p.pos < len(p.data) && p.data[p.pos] == c {
		p.pos++
		return true
	}
	return false
}

// text reads a string of printable ASCII without escapes, which means itself.
func (p *plainParser) text() ([]byte, bool) {
	if !p.next('"') {
		return nil, false
	}
	start := p.pos
	for ; p.pos < len(p.data); p.pos++ {
		switch c := p.data[p.pos]; {
		case c == '"':
			p.pos++
			return p.data[start : p.pos-1], true
		case c < ' ' || c == '\\' || c >= 0x7f:
			return nil, false
		}
	}
	return nil, false
}

// value reads any value and returns its bytes.
func (p *plainParser) value() json.RawMessage {
	start, depth := p.pos, 0
	for p.pos < len(p.data) {
		switch p.data[p.pos] {
		case '"':
			p.skipString()
			if depth == 0 {
				return p.data[start:p.pos]
			}
			continue
		case '[', '{':
			depth++
		case ']', '}':
			if depth--; depth == 0 {
				p.pos++
			}
			if depth <= 0 { // below 0 it closes what a number or word stands in
				return p.data[start:p.pos]
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return p.data[start:p.pos]
			}
		}
		p.pos++
	}
	return p.data[start:p.pos]
}

// skipString goes behind a string, of which it reads the ends of runs only: most bytes of
// large messages are in strings. The next quote is looked for once, not again after each
// escape before it: of megabytes of escapes that would be the square.
func (p *plainParser) skipString() {
	p.pos++
	quote := -1
	for p.pos < len(p.data) {
		if quote < p.pos {
			n := bytes.IndexByte(p.data[p.pos:], '"')
			if n < 0 {
				break
			}
			quote = p.pos + n
		}
		escape := bytes.IndexByte(p.data[p.pos:quote], '\\')
		if escape < 0 {
			p.pos = quote + 1
			return
		}
		p.pos += escape + 2 // what is escaped may be the quote
	}
	p.pos = len(p.data)
}
