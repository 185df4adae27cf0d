// SPDX-License-Identifier: LGPL-3.0-or-later

package logger

import (
	"encoding/hex"
	"encoding/json"
	"strconv"
)

// guardChunk is the unit in which a trace is kept, in bytes.
const guardChunk = 64 << 10

// GuardLog is a StructLogger whose steps are kept as text in a few large pieces.
//
// The logger keeps each step as a slice of its own: a trace of 200 MB is 2.4 million
// objects, and while it grows the collector marks all of them again and again, with
// half the processors, and everybody else who allocates has to help. Pieces of 64 KiB
// without a pointer in them cost it nothing; what a step leaves behind dies at once.
type GuardLog struct {
	*StructLogger
	chunks [][]byte
	steps  int
	size   int // of the steps and the commas between them
}

// NewGuardLog returns a logger like NewStructLogger.
func NewGuardLog(cfg *Config) *GuardLog { return &GuardLog{StructLogger: NewStructLogger(cfg)} }

// Take moves what the logger has recorded since the last time. It returns how many
// bytes that is, 0 if there is nothing new.
func (g *GuardLog) Take() (n int) {
	for i := range g.logs {
		if g.steps > 0 {
			n += g.append(comma)
		}
		n += g.append(g.stepText(i))
		g.steps++
	}
	g.forgetSteps()
	g.size += n
	return n
}

// Steps returns the number of steps taken so far.
func (g *GuardLog) Steps() int { return g.steps }

// Size returns the bytes of trace output taken so far.
func (g *GuardLog) Size() int { return g.size }

var comma = []byte{','}

func (g *GuardLog) append(text []byte) int {
	for rest := text; len(rest) > 0; {
		last := len(g.chunks) - 1
		if last < 0 || len(g.chunks[last]) == cap(g.chunks[last]) {
			// The first one is small: most calls that are traced have few steps.
			size := guardChunk
			if last < 0 {
				size = guardChunk / 16
			}
			g.chunks = append(g.chunks, make([]byte, 0, size))
			last++
		}
		n := min(len(rest), cap(g.chunks[last])-len(g.chunks[last]))
		g.chunks[last] = append(g.chunks[last], rest[:n]...)
		rest = rest[n:]
	}
	return len(text)
}

// GetResult returns the same bytes as the logger's own, and lets go of the steps while
// it copies them: a trace of n bytes needs 2n at its largest moment, where
// encoding/json (which reads every step again, into a buffer that doubles, and copies
// that) needs 4n. The logger is of no use afterwards.
func (g *GuardLog) GetResult() (json.RawMessage, error) {
	g.Take()
	if reason := g.stopReason(); reason != nil {
		return nil, reason
	}
	output := g.output
	if g.err != nil && !reverted(g.err) {
		output = nil // says nothing about how it failed
	}
	const envelope = len(`{"gas":18446744073709551615,"failed":false,"returnValue":"0x","structLogs":[]}`)
	buf := append(make([]byte, 0, envelope+2*len(output)+g.size), `{"gas":`...)
	buf = strconv.AppendUint(buf, g.usedGas, 10)
	buf = strconv.AppendBool(append(buf, `,"failed":`...), g.err != nil)
	buf = hex.AppendEncode(append(buf, `,"returnValue":"`+returnPrefix...), output)
	buf = append(buf, `","structLogs":[`...)
	for i, chunk := range g.chunks {
		buf = append(buf, chunk...)
		g.chunks[i] = nil
	}
	g.chunks = nil
	return append(buf, ']', '}'), nil
}
