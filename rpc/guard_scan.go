// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import "bytes"

// batchScanner counts the elements of a batch in the raw bytes of a message, and
// says where to cut it so that no more than limit+1 of them are ever built. One
// element too many is left in place: it makes upstream's own check answer "batch
// too large" as it always did.
//
// 4.9 MiB of `[0,0,0,...]` are 2.5 million elements, 360 MiB once built. With a
// limit of 1000 the cut is at the 1001st comma, after 2003 bytes.
//
// Bytes may be fed in any split. What follows the cut is not looked at, so such
// a message is answered as too large even if it is not valid JSON further on.
// Up to the cut the scanner only tells strings from the rest; whether the JSON
// is valid is checked by upstream afterwards, and a scan led astray by invalid
// JSON merely cuts elsewhere. It uses no memory and no recursion: a million `[`
// are a number.
//
// A message that is no batch is not scanned beyond its first character.
type batchScanner struct {
	limit  int // elements of a batch; 0: any number
	state  scanState
	depth  int // brackets and braces open, the batch's own included
	commas int
	cut    int64 // offset of the comma to cut at, valid in scanCut
	off    int64 // bytes fed
}

type scanState uint8

const (
	scanStart scanState = iota
	scanPlain           // inside the batch, between strings
	scanString
	scanEscape // after a backslash in a string
	scanCut    // the batch has too many elements
	scanDone   // no batch, or its end was seen
)

// feed scans the next bytes and returns how many of them, from the start, belong
// to what is kept of the message.
func (s *batchScanner) feed(p []byte) (keep int) {
	if s.limit <= 0 {
		return len(p)
	}
	for i := 0; i < len(p); i++ {
		switch c := p[i]; s.state {
		case scanStart:
			switch c {
			case ' ', '\t', '\r', '\n':
			case '[':
				s.state, s.depth = scanPlain, 1
			default:
				s.state = scanDone
			}
		case scanPlain:
			switch c {
			case '"':
				s.state = scanString
			case '[', '{':
				s.depth++
			case ']', '}':
				if s.depth--; s.depth == 0 {
					s.state = scanDone
				}
			case ',':
				if s.depth == 1 {
					if s.commas++; s.commas > s.limit {
						s.state, s.cut = scanCut, s.off+int64(i)
					}
				}
			}
		case scanString:
			// Most bytes of real batches are hex strings: jump to their ends.
			rest := p[i:]
			end := bytes.IndexByte(rest, '"')
			if end < 0 {
				end = len(rest)
			}
			if esc := bytes.IndexByte(rest[:end], '\\'); esc >= 0 {
				i += esc
				s.state = scanEscape
			} else if end < len(rest) {
				i += end
				s.state = scanPlain
			} else {
				i = len(p)
			}
		case scanEscape:
			s.state = scanString
		case scanCut:
			s.off += int64(len(p))
			return int(max(0, s.cut-(s.off-int64(len(p)))))
		case scanDone:
			s.off += int64(len(p))
			return len(p)
		}
	}
	s.off += int64(len(p))
	if s.state == scanCut {
		return int(s.cut - (s.off - int64(len(p))))
	}
	return len(p)
}

// tooMany reports whether the batch was cut.
func (s *batchScanner) tooMany() bool { return s.state == scanCut }

// over reports whether the batch has more elements than allowed, cut or not.
func (s *batchScanner) over() bool { return s.limit > 0 && s.commas >= s.limit }

// cutBatch returns a message of which no more than limit+1 elements are left if
// it is a batch. The result then is a copy, so that the message can be freed.
func cutBatch(msg []byte, limit int) []byte {
	s := batchScanner{limit: limit}
	keep := s.feed(msg)
	if !s.tooMany() {
		return msg
	}
	cut := make([]byte, keep+1)
	copy(cut, msg[:keep])
	cut[keep] = ']'
	return cut
}
