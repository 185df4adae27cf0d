// SPDX-License-Identifier: LGPL-3.0-or-later

// Package attack holds the abuses of a geth node's JSON-RPC server, each a named
// case with its recipe and the bound that a server which survives it keeps.
//
// # Model
//
// A case runs against one node, black box, over its sockets. Beside it the polite
// client of package rig works as always; what that client sees is judged in every
// case, what the node used (memory, goroutines, processor) in those that say so.
// A verdict is one of three: held (every bound kept), broken (one was not, or the
// node had to be ended because it outgrew its memory limit), n/a (the binary or
// the endpoint lacks what the case needs).
//
// # Rules for cases
//
//   - Wait for a signal, never for a guess of time; every wait has an end.
//   - A bound on time is a ratio to the same binary without the attack (LatencyBound).
//   - Everything a case opened is closed when it returns (Run.Close...).
//   - Attackers use r.Attacker(i), never the polite client's address.
//   - A check that stock geth cannot meet by design names what is measured, so
//     that a reader of the table can repeat it by hand.
//
// # Example in numbers
//
// Case subscriber-stops: a subscriber with a 4 KiB receive buffer stops reading
// while 200 KB notifications flow. Unloaded, heads come every 1.0 s and calls
// take 2 ms at the 99th percentile. The bounds: no silence of newHeads over two
// block times (2 s) and a margin for scheduling, calls within 27 ms, every event
// in order. Stock v1.17.10 is silent for 9-10 s: broken.
package attack

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Needs says what a case cannot do without.
type Needs uint

const (
	// NeedChain: a node started by the rig, since transactions are sent or flags set.
	NeedChain Needs = 1 << iota
	// NeedWS: a WebSocket endpoint.
	NeedWS
	// NeedH2: HTTP/2 in clear text.
	NeedH2
	// NeedIPC: the node's socket.
	NeedIPC
	// NeedAuth: the engine port.
	NeedAuth
	// NeedGuard: rpcguard's own API, books or flags.
	NeedGuard
	// NeedGraphQL: the GraphQL endpoint.
	NeedGraphQL
	// NeedMetrics: the metrics and pprof pages.
	NeedMetrics
)

// Case is one abuse.
type Case struct {
	Name   string // short, unique, words joined by dashes
	Number int    // in the list of abuses; 0: a further one
	Family string
	Recipe string // what the attacker does
	Bound  string // what must hold
	Why    string // one line in an operator's words
	Needs  Needs
	Quick  bool     // in the quick set
	Flags  []string // further flags for the node, where its binary knows them
	Run    func(*Run)

	// Engine: runs against a node with an engine port, which --dev has not; its chain
	// stands still.
	Engine bool
	// Alone: needs a node of its own.
	Alone bool
	// Before makes what the chain must hold, before the polite client starts: what making
	// it costs is not the attack's doing.
	Before func(*Run)
	// Flow: large transactions flow throughout (Run.LargeFlow). They are the surroundings,
	// not the abuse: the polite client's calls are held against what the same binary takes
	// under the same flow without the attacker.
	Flow bool
	// Long: takes longer than the minute that a quick run gives a case.
	Long bool
	// NoPolite: no polite client beside it, since the case is about a count.
	NoPolite bool
	// MemoryLimit ends the node (bytes; 0: the suite's).
	MemoryLimit int64
}

func (c *Case) String() string {
	n := "     "
	if c.Number > 0 {
		n = fmt.Sprintf("%4d ", c.Number)
	}
	q := " "
	if c.Quick {
		q = "q"
	}
	return fmt.Sprintf("%s%s %-28s %-12s %s", n, q, c.Name, c.Family, c.Why)
}

var all []*Case

// add registers cases; each family's file calls it from init.
func add(cs ...*Case) {
	for _, c := range cs {
		if c.Name == "" || c.Family == "" || c.Run == nil || c.Why == "" || c.Recipe == "" || c.Bound == "" {
			panic(fmt.Sprintf("attack: incomplete case %q", c.Name))
		}
		if find(c.Name) != nil {
			panic("attack: two cases " + c.Name)
		}
		all = append(all, c)
	}
}

func find(name string) *Case {
	for _, c := range all {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// Cases returns all cases in the order of their numbers, the further ones behind.
func Cases() []*Case {
	cs := slices.Clone(all)
	slices.SortStableFunc(cs, func(a, b *Case) int {
		if (a.Number == 0) != (b.Number == 0) {
			return b.Number - a.Number
		}
		return a.Number - b.Number
	})
	return cs
}

// Select returns the cases that patterns name: a name, a part of one, a family,
// or a number, joined by commas. Empty: all.
func Select(patterns string, quick bool) ([]*Case, error) {
	var out []*Case
	want := strings.FieldsFunc(patterns, func(r rune) bool { return r == ',' || r == ' ' })
	used := make(map[string]bool)
	for _, c := range Cases() {
		match := len(want) == 0 && (!quick || c.Quick)
		for _, w := range want {
			if w == c.Name || w == c.Family || w == fmt.Sprint(c.Number) || (len(w) > 3 && strings.Contains(c.Name, w)) {
				match, used[w] = true, true
			}
		}
		if match {
			out = append(out, c)
		}
	}
	for _, w := range want {
		if !used[w] {
			return nil, fmt.Errorf("no case matches %q", w)
		}
	}
	return out, nil
}

// Verdict of a case.
type Verdict string

// The verdicts.
const (
	Held   Verdict = "held"
	Broken Verdict = "broken"
	NA     Verdict = "n/a"
)

// Figure is something measured.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit,omitempty"` // "s", "B", "": a count
	Bound float64 `json:"bound,omitempty"`
	OK    bool    `json:"ok"`
}

func (f Figure) String() string {
	return fmt.Sprintf("%s %s", f.Name, formatUnit(f.Value, f.Unit))
}

func formatUnit(v float64, unit string) string {
	switch unit {
	case "s":
		return formatDuration(time.Duration(v * float64(time.Second)))
	case "B":
		return FormatBytes(int64(v))
	case "":
		if v == float64(int64(v)) {
			return fmt.Sprint(int64(v))
		}
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3g %s", v, unit)
}

func formatDuration(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d >= time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d >= 10*time.Millisecond:
		return fmt.Sprintf("%.0f ms", float64(d)/1e6)
	}
	return fmt.Sprintf("%.1f ms", float64(d)/1e6)
}

// FormatBytes writes a size in the unit that fits.
func FormatBytes(n int64) string {
	switch abs := max(n, -n); {
	case abs >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case abs >= 1<<20:
		return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20))
	case abs >= 1<<10:
		return fmt.Sprintf("%.0f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}
