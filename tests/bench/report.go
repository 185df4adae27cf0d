// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
)

// Row is the outcome of one workload.
type Row struct {
	Group    string    `json:"group"`
	Workload string    `json:"workload"`
	Rounds   int       `json:"rounds"`
	Measures []Measure `json:"measures"`
	Note     string    `json:"note,omitempty"`
}

// Measure is one quantity on both sides. Ratio is ours/stock by round.
type Measure struct {
	Name       string   `json:"name"`
	MoreIsGood bool     `json:"moreIsGood,omitempty"`
	Stock      float64  `json:"stock"` // median
	Ours       float64  `json:"ours"`  // median
	Ratio      Estimate `json:"ratio"`
}

// verdict says in a word how ours compares, "" if the interval includes 1.
func (m Measure) verdict() string {
	better, worse := m.Ratio.Hi < 1, m.Ratio.Lo > 1
	if m.MoreIsGood {
		better, worse = worse, better
	}
	switch {
	case m.Ratio.N < 6:
		return ""
	case better:
		return "better"
	case worse:
		return "worse"
	}
	return ""
}

// pair collects the samples of a measure.
type pair struct {
	name        string
	more        bool
	stock, ours []float64
}

func newPair(name string, more bool) *pair { return &pair{name: name, more: more} }

func (p *pair) add(s *side, v float64) {
	if s.name == "ours" {
		p.ours = append(p.ours, v)
	} else {
		p.stock = append(p.stock, v)
	}
}

func (p *pair) measure() Measure {
	var ratios []float64
	for i := range min(len(p.stock), len(p.ours)) {
		if p.stock[i] > 0 {
			ratios = append(ratios, p.ours[i]/p.stock[i])
		}
	}
	return Measure{p.name, p.more, medianOf(p.stock), medianOf(p.ours), estimate(ratios)}
}

// MarshalJSON leaves out what is not a number, which JSON cannot express.
func (e Estimate) MarshalJSON() ([]byte, error) {
	if math.IsNaN(e.Median) {
		return []byte("null"), nil
	}
	type plain Estimate
	return json.Marshal(plain(e))
}

func (e Estimate) String() string {
	if e.N == 0 || math.IsNaN(e.Median) {
		return "-"
	}
	if e.N == 1 {
		return fmt.Sprintf("%.3f", e.Median)
	}
	return fmt.Sprintf("%.3f [%.3f, %.3f]", e.Median, e.Lo, e.Hi)
}

// number prints three digits that count.
func number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return "-"
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 1:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.3f", v)
	}
}

var columns = []string{"workload", "measure", "stock", "ours", "ours/stock [95 %]", ""}

func (r Row) cells() (lines [][]string) {
	for i, m := range r.Measures {
		name, note := r.Workload, ""
		if i > 0 {
			name = ""
		} else {
			note = r.Note
		}
		lines = append(lines, []string{name, m.Name, number(m.Stock), number(m.Ours), m.Ratio.String(), strings.TrimSpace(m.verdict() + " " + note)})
	}
	return lines
}

// writeTable prints rows for a terminal, writeMarkdown for a page.
func writeTable(w io.Writer, rows []Row) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(columns, "\t"))
	for _, r := range rows {
		for _, line := range r.cells() {
			fmt.Fprintln(t, strings.Join(line, "\t"))
		}
	}
	t.Flush()
}

func writeMarkdown(w io.Writer, rows []Row) {
	fmt.Fprintf(w, "| %s |\n|---|---|--:|--:|--:|---|\n", strings.Join(columns, " | "))
	for _, r := range rows {
		for _, line := range r.cells() {
			fmt.Fprintf(w, "| %s |\n", strings.Join(line, " | "))
		}
	}
}
