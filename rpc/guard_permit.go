// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"fmt"
	"math/bits"
	"sync/atomic"
)

// permitKind is a resource of which a class needs one.
type permitKind uint8

const (
	permitExec   permitKind = iota // normal, compute and heavy calls
	permitCPU                      // compute and heavy calls
	permitHeavy                    // heavy calls
	permitParked                   // parked calls
	numPermits
)

// scarcestPermit is the permit that calls of a class are likely to wait for. It is
// the one a client is held to its fair share of.
var scarcestPermit = [numClasses]permitKind{
	classNormal:  permitExec,
	classCompute: permitCPU,
	classHeavy:   permitHeavy,
	classParked:  permitParked,
}

// permitCounts counts permits by kind.
type permitCounts [numPermits]int

// add adds n of each permit that a call of the class holds.
func (p *permitCounts) add(class callClass, n int) {
	switch class {
	case classHeavy:
		p[permitHeavy] += n
		fallthrough
	case classCompute:
		p[permitCPU] += n
		fallthrough
	case classNormal:
		p[permitExec] += n
	case classParked:
		p[permitParked] += n
	}
}

// gateLimits are the limits that can change while the gate runs.
type gateLimits struct {
	Concurrency int // normal, compute and heavy calls executing, at least 1
	Queue       int // calls waiting, at least 0
	CPU         int // compute and heavy calls executing, at least 1
	Heavy       int // heavy calls executing, at least 1
	Parked      int // parked calls, at least 1
}

func (l gateLimits) validate() error {
	for _, f := range []struct {
		name       string
		value, low int
		hint       string
	}{
		{"concurrency", l.Concurrency, 1, "; to stop limiting, turn the guard off instead"},
		{"queue", l.Queue, 0, ""},
		{"cpu", l.CPU, 1, ""},
		{"heavy", l.Heavy, 1, ""},
		{"parked", l.Parked, 1, ""},
	} {
		if f.value < f.low {
			return fmt.Errorf("%s limit %d is out of range, want at least %d%s", f.name, f.value, f.low, f.hint)
		}
	}
	return nil
}

// valid reports whether validate has no objection, without saying which it would be.
func (l gateLimits) valid() bool {
	return l.Concurrency >= 1 && l.Queue >= 0 && l.CPU >= 1 && l.Heavy >= 1 && l.Parked >= 1
}

// with returns the limits after a change.
func (l gateLimits) with(c limitChange) gateLimits {
	for _, f := range []struct{ to, from *int }{
		{&l.Concurrency, c.Concurrency}, {&l.Queue, c.Queue}, {&l.CPU, c.CPU}, {&l.Heavy, c.Heavy}, {&l.Parked, c.Parked},
	} {
		if f.from != nil {
			*f.to = *f.from
		}
	}
	return l
}

func (l *gateLimits) of(kind permitKind) int {
	switch kind {
	case permitCPU:
		return l.CPU
	case permitHeavy:
		return l.Heavy
	case permitParked:
		return l.Parked
	default:
		return l.Concurrency
	}
}

// allow reports whether one more call of the class may execute beside those that
// hold the given permits, as far as it is not about the permit to execute.
func (l *gateLimits) allow(class callClass, held *permitCounts) bool {
	switch class {
	case classParked:
		return held[permitParked] < l.Parked
	case classHeavy:
		return held[permitHeavy] < l.Heavy && held[permitCPU] < l.CPU
	case classCompute:
		return held[permitCPU] < l.CPU
	}
	return true
}

// heavyPlaces returns how many places of the queue heavy calls may take.
func (l *gateLimits) heavyPlaces() int {
	heavy := min(l.Heavy, l.CPU, l.Concurrency) // as many as can ever run
	// heavy <= concurrency, so the quotient is at most queue and cannot overflow.
	hi, lo := bits.Mul64(uint64(heavy), uint64(l.Queue))
	quo, rem := bits.Div64(hi, lo, uint64(l.Concurrency))
	if rem > 0 {
		quo++
	}
	return int(quo)
}

// outcome is how a call ended.
type outcome uint8

const (
	outcomeServed    outcome = iota
	outcomeFailed            // the client was sent an error
	outcomeCancelled         // the client was gone before the method returned
	outcomeRefused           // refused after admission, and counted as that already
	numOutcomes
)

// refusal is why a call was not admitted.
type refusal uint8

const (
	admitted         refusal = iota
	refusedFull              // no place for it
	refusedDisplaced         // its place went to somebody with a smaller share
	refusedExpired           // it waited as long as it may
	refusedShutdown          // the node stops
	refusedBytes             // no room for its request (counted by the byte budget's user)
	refusedReply             // no room for its reply (likewise)
	refusedGone              // its client left while it waited; counts as cancelled
	numRefusals
)

// refusalReasons are the names of refusals in metrics, "" for what is none.
var refusalReasons = [numRefusals]string{
	"", "full", "displaced", "expired", "shutdown", "bytes", "reply", "",
}

func (r refusal) String() string {
	switch r {
	case admitted:
		return "admitted"
	case refusedGone:
		return "gone"
	}
	return refusalReasons[r]
}

// classBook counts how the calls of one class ended. The fields are atomics, not
// metrics: those are off by default, and books must always be right.
type classBook struct {
	arrived, served, failed, cancelled atomic.Uint64
	refused                            [numRefusals]atomic.Uint64

	_ [cacheLine]byte // the next class is counted by other processors
}

func (b *classBook) refuse(r refusal) {
	if r == refusedGone {
		b.cancelled.Add(1)
	} else {
		b.refused[r].Add(1)
	}
}

func (b *classBook) end(o outcome) {
	switch o {
	case outcomeServed:
		b.served.Add(1)
	case outcomeFailed:
		b.failed.Add(1)
	case outcomeCancelled:
		b.cancelled.Add(1)
	}
}

// bookTotals is a class's book as read at one moment.
type bookTotals struct {
	Arrived   uint64            `json:"arrived"`
	Served    uint64            `json:"served"`
	Failed    uint64            `json:"failed"`
	Cancelled uint64            `json:"cancelled"`
	Refused   map[string]uint64 `json:"refused"` // by reason
}

// total reads the book. While calls are live the sum of the rest is behind
// Arrived by them; when idle it is exact.
func (b *classBook) total() bookTotals {
	t := bookTotals{
		Served:    b.served.Load(),
		Failed:    b.failed.Load(),
		Cancelled: b.cancelled.Load(),
		Refused:   make(map[string]uint64, len(refusalReasons)),
	}
	for r := range b.refused {
		if name := refusalReasons[r]; name != "" {
			t.Refused[name] = b.refused[r].Load()
		}
	}
	t.Arrived = b.arrived.Load() // last, so that nobody has ended that has not arrived
	return t
}

func (t *bookTotals) add(o *bookTotals) {
	t.Arrived += o.Arrived
	t.Served += o.Served
	t.Failed += o.Failed
	t.Cancelled += o.Cancelled
	if t.Refused == nil {
		t.Refused = make(map[string]uint64)
	}
	for reason, n := range o.Refused {
		t.Refused[reason] += n
	}
}

func (t *bookTotals) refusedSum() (n uint64) {
	for _, v := range t.Refused {
		n += v
	}
	return n
}
