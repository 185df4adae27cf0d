// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// targetRow is what one target came to.
type targetRow struct {
	Target, Base, Applies string
	Builds                string // the command that was built and linked, "rpc" if only that was vetted
	Hunks, Lines          int
	Packages              []packageRow `json:",omitempty"`
	Tried                 int          `json:",omitempty"` // attacks judged
	Broken                []string     `json:",omitempty"` // "case: first bound broken"
	Error                 string       `json:",omitempty"`
	Seconds               int
}

// packageRow is what the tests of one package came to.
type packageRow struct {
	Package string
	Own     bool     `json:",omitempty"` // only our tests were run
	OK      bool     // passes, but for Stock and Once
	Failed  []string `json:",omitempty"` // fail here alone
	Stock   []string `json:",omitempty"` // fail without the patches, too
	Once    []string `json:",omitempty"` // failed in the whole run and pass by themselves
}

func (r *repo) keptFile() string { return r.path("build", "bases.json") }

// readKept reads what earlier runs found, by the target's name.
func (r *repo) readKept() (map[string]*targetRow, error) {
	kept := make(map[string]*targetRow)
	data, err := os.ReadFile(r.keptFile())
	if errors.Is(err, fs.ErrNotExist) {
		return kept, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &kept)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.keptFile(), err)
	}
	return kept, nil
}

// writeKept replaces the file in one step: a run that is ended leaves the old one.
func (r *repo) writeKept(kept map[string]*targetRow) error {
	data, err := json.MarshalIndent(kept, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(r.path("build"), 0o755); err != nil {
		return err
	}
	part := r.keptFile() + ".part"
	if err := os.WriteFile(part, append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(part, r.keptFile())
}

// complete reports whether the row answers what the options ask, and well.
func (row *targetRow) complete(o basesOptions) bool {
	return row.Error == "" && row.Applies == "strictly" && row.Builds != "-" && row.Builds != "no" &&
		(o.quick || row.Builds != "rpc") && (!o.test || len(row.Packages) > 0) && (o.attacks == "" || row.Tried > 0)
}

// tests is the row's cell: packages that pass, then what does not.
func (row *targetRow) tests() string {
	if len(row.Packages) == 0 {
		return "-"
	}
	var pass, own, rest []string
	for _, p := range row.Packages {
		name := strings.TrimSuffix(strings.TrimPrefix(p.Package, "./"), "/...")
		switch {
		case !p.OK:
			rest = append(rest, fmt.Sprintf("%s fails: %s", name, strings.Join(p.Failed, ", ")))
			continue
		case p.Own:
			own = append(own, name)
		default:
			pass = append(pass, name)
		}
		if len(p.Stock) > 0 {
			rest = append(rest, fmt.Sprintf("%s as stock, where %s fail", name, strings.Join(p.Stock, ", ")))
		}
		if len(p.Once) > 0 {
			rest = append(rest, fmt.Sprintf("%s: %s passed the second time", name, strings.Join(p.Once, ", ")))
		}
	}
	var parts []string
	if len(pass) > 0 {
		parts = append(parts, "pass: "+strings.Join(pass, ", "))
	}
	if len(own) > 0 {
		parts = append(parts, "ours pass: "+strings.Join(own, ", "))
	}
	return strings.Join(append(parts, rest...), "; ")
}

// attacks is the row's cell: how many of those tried held, and which did not.
func (row *targetRow) attacks() string {
	if row.Tried == 0 {
		return "-"
	}
	s := fmt.Sprintf("%d of %d", row.Tried-len(row.Broken), row.Tried)
	var names []string
	for _, b := range row.Broken {
		name, _, _ := strings.Cut(b, ":")
		names = append(names, name)
	}
	if len(names) > 0 {
		s += "; not " + strings.Join(names, ", ")
	}
	return s
}

// printRows prints the table, and below it what went wrong.
func printRows(out io.Writer, rows []*targetRow, markdown bool) {
	head := []string{"base", "target", "applies", "hunks", "lines", "builds", "tests", "attacks held"}
	cells := [][]string{head}
	for _, row := range rows {
		cells = append(cells, []string{row.Base, row.Target, row.Applies, fmt.Sprint(row.Hunks), fmt.Sprint(row.Lines), row.Builds, row.tests(), row.attacks()})
	}
	if markdown {
		cells = slices.Insert(cells, 1, slices.Repeat([]string{"---"}, len(head)))
		for _, c := range cells {
			fmt.Fprintf(out, "| %s |\n", strings.Join(c, " | "))
		}
	} else {
		(&table{rows: cells}).print(out)
	}
	for _, row := range rows {
		if row.Error != "" {
			fmt.Fprintf(out, "\n%s: %s\n", row.Target, row.Error)
		}
		for _, b := range row.Broken {
			fmt.Fprintf(out, "\n%s: %s\n", row.Target, b)
		}
	}
}
