// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"rpcguard/tests/slowclient/attack"
)

// report collects records, a column a suite.
type report struct {
	suites []*attack.Suite
	cases  []*attack.Case
	cells  map[*attack.Suite]map[string]*attack.Record
	counts map[*attack.Suite]map[string]map[attack.Verdict]int // over all rounds
}

func newReport(suites []*attack.Suite, cases []*attack.Case) *report {
	r := &report{suites: suites, cases: cases, cells: make(map[*attack.Suite]map[string]*attack.Record)}
	r.counts = make(map[*attack.Suite]map[string]map[attack.Verdict]int)
	for _, s := range suites {
		r.cells[s] = make(map[string]*attack.Record)
		r.counts[s] = make(map[string]map[attack.Verdict]int)
	}
	return r
}

// add keeps a record; of a repeated case a broken one is kept.
func (r *report) add(s *attack.Suite, rec *attack.Record) {
	if r.counts[s][rec.Case] == nil {
		r.counts[s][rec.Case] = make(map[attack.Verdict]int)
	}
	r.counts[s][rec.Case][rec.Verdict]++
	if old := r.cells[s][rec.Case]; old == nil || old.Verdict != attack.Broken {
		r.cells[s][rec.Case] = rec
	}
}

// compare holds the polite client's latency against that of stock in the same run:
// where stock broke by it, at most a twentieth. A twentieth that is less than what the
// binary takes unloaded is beyond anybody, and not asked for.
func (r *report) compare(s *attack.Suite, rec *attack.Record) {
	if s.Binary == nil || !s.Binary.Guarded() || rec.Polite == nil || rec.Verdict == attack.NA {
		return
	}
	for _, other := range slices.Backward(r.suites) { // the newest stock release comes last
		stock := r.cells[other][rec.Case]
		if other == s || other.Binary == nil || other.Binary.Guarded() || stock == nil || stock.Polite == nil || !stock.Late() {
			continue
		}
		floor := rec.Polite.Noise
		if base := s.Base(); base != nil {
			floor += base.P99
		}
		if bound := stock.Polite.P99 / 20; bound >= floor {
			rec.Judge("polite p99, a twentieth of stock's", rec.Polite.P99, bound)
		}
		return
	}
}

// flakes says which verdicts were not the same in all rounds.
func (r *report) flakes(w io.Writer, rounds int) {
	total, flaky := 0, 0
	for _, s := range r.suites {
		for _, c := range r.cases {
			n := r.counts[s][c.Name]
			all, most := 0, 0
			for _, k := range n {
				all, most = all+k, max(most, k)
			}
			total += all
			if most == all {
				continue
			}
			flaky += all - most
			fmt.Fprintf(w, "flake: %s, %s: held %d, broken %d, n/a %d\n", s.Version(), c.Name, n[attack.Held], n[attack.Broken], n[attack.NA])
		}
	}
	fmt.Fprintf(w, "# %d rounds: %d of %d verdicts differ from the case's usual one\n", rounds, flaky, total)
}

func (r *report) totals(s *attack.Suite) string {
	n := make(map[attack.Verdict]int)
	for _, rec := range r.cells[s] {
		n[rec.Verdict]++
	}
	return fmt.Sprintf("%d held, %d broken, %d n/a", n[attack.Held], n[attack.Broken], n[attack.NA])
}

func printRecord(w io.Writer, rec *attack.Record) {
	num := ""
	if rec.Number > 0 {
		num = fmt.Sprint(rec.Number)
	}
	fmt.Fprintf(w, "%-7s %3s %-26s %5.1f s  %s\n", rec.Verdict, num, rec.Case, rec.Seconds, rec.Summary())
	if rec.Verdict != attack.Held {
		fmt.Fprintf(w, "            %s\n", rec.Reason)
	}
}

// human prints the verdicts side by side.
func (r *report) human(w io.Writer) {
	fmt.Fprintf(w, "\n%-32s", "")
	for _, s := range r.suites {
		fmt.Fprintf(w, " %-16.16s", s.Version())
	}
	fmt.Fprintln(w)
	for _, c := range r.cases {
		fmt.Fprintf(w, "%3s %-28s", number(c), c.Name)
		for _, s := range r.suites {
			v := attack.Verdict("")
			if rec := r.cells[s][c.Name]; rec != nil {
				v = rec.Verdict
			}
			fmt.Fprintf(w, " %-16s", v)
		}
		fmt.Fprintln(w)
	}
}

// markdown prints the table of the README: what one suite measured, or the
// verdicts of several side by side.
func (r *report) markdown(w io.Writer) {
	fmt.Fprint(w, "| # | abuse | why it matters |")
	for _, s := range r.suites {
		fmt.Fprintf(w, " %s |", s.Version())
	}
	fmt.Fprintf(w, "\n|---|---|---|%s\n", strings.Repeat("---|", len(r.suites)))
	for _, c := range r.cases {
		fmt.Fprintf(w, "| %s | %s | %s |", number(c), c.Name, c.Why)
		for _, s := range r.suites {
			fmt.Fprintf(w, " %s |", cell(r.cells[s][c.Name]))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprint(w, "| | | |")
	for _, s := range r.suites {
		fmt.Fprintf(w, " %s |", r.totals(s))
	}
	fmt.Fprintln(w)
}

func cell(rec *attack.Record) string {
	switch {
	case rec == nil:
		return ""
	case rec.Verdict == attack.Held:
		return "held"
	case rec.Verdict == attack.NA:
		return "n/a"
	}
	reason, _, _ := strings.Cut(rec.Reason, "; ")
	return "**broken**: " + strings.NewReplacer("|", "/", "\n", " ").Replace(reason)
}

func number(c *attack.Case) string {
	if c.Number == 0 {
		return ""
	}
	return fmt.Sprint(c.Number)
}
