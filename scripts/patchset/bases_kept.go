// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
)

// targetRow is what one target came to. A row that lacks Path and State was kept by an
// older version of this program: it can be shown, but nobody knows what it was judged by.
type targetRow struct {
	Target, Base, Applies string
	Path                  string `json:",omitempty"` // the release, or the directory's absolute path
	State                 string `json:",omitempty"` // of patches, own files and directory, see repo.state
	Attacks               string `json:",omitempty"` // the cases that were asked for
	Builds                string // the command that was built and linked, or vetted
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

// vetted is told where nothing was linked; older rows have "rpc", which is what they vetted.
const vetted = "vetted"

func (r *repo) keptFile() string { return r.path("build", "bases.json") }

// keptRows is what earlier runs found, by the target's path. Rows of an older version of
// this program have the target's name there.
type keptRows map[string]*targetRow

func (kept keptRows) row(t target) *targetRow {
	if row := kept[t.path]; row != nil {
		return row
	}
	if row := kept[t.name]; row != nil && row.Path == "" {
		return row
	}
	return nil
}

func (kept keptRows) put(t target, row *targetRow) {
	if old := kept[t.name]; old != nil && old.Path == "" {
		delete(kept, t.name)
	}
	kept[t.path] = row
}

func (r *repo) readKept() (keptRows, error) {
	kept := make(keptRows)
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
func (r *repo) writeKept(kept keptRows) error {
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

// judged reports whether a row tells of this target as it is now.
func (row *targetRow) judged(t target, state string) bool {
	return row.Path == t.path && row.State == state
}

// complete reports whether the row answers what the options ask, and well.
func (row *targetRow) complete(o basesOptions) bool {
	return row.Error == "" && row.Applies == "strictly" && row.Builds != "-" && row.Builds != "no" &&
		(o.quick || row.Builds != vetted) && (!o.test || len(row.Packages) > 0) &&
		(o.attacks == "" || row.Tried > 0 && row.Attacks == o.attacks)
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

// printKept prints what earlier runs found of the targets, or of all there are, and
// tries nothing.
func (r *repo) printKept(targets []target, kept keptRows, all bool, out io.Writer) error {
	var rows []*targetRow
	add := func(row *targetRow) {
		if row != nil && !slices.Contains(rows, row) {
			rows = append(rows, row)
		}
	}
	for _, t := range targets {
		add(kept.row(t))
	}
	if all {
		for _, key := range slices.Sorted(maps.Keys(kept)) {
			add(kept[key])
		}
	}
	if len(rows) == 0 {
		return fmt.Errorf("%s holds none of the targets; run bases with --test, --attacks or --quick first", r.keptFile())
	}
	printRows(out, rows, true)
	for _, row := range rows {
		t, err := r.resolve(row.Path)
		state := ""
		if err == nil {
			state, err = r.state(t)
		}
		switch {
		case row.Path == "":
			fmt.Fprintf(out, "\n%s: kept by an older version of this tool; judged by patches that are not known\n", row.Target)
		case err != nil || !row.judged(t, state):
			fmt.Fprintf(out, "\n%s: judged in another state than today's of the patches, own files or directory\n", row.Target)
		}
	}
	return nil
}

// printRows prints the table, and below it what went wrong.
func printRows(out io.Writer, rows []*targetRow, markdown bool) {
	head := []string{"base", "target", "applies", "hunks", "lines", "builds", "tests", "attacks held"}
	cells := [][]string{head}
	count := make(map[string]int)
	for _, row := range rows {
		count[row.Target]++
	}
	for _, row := range rows {
		name := row.Target
		if count[name] > 1 && row.Path != "" {
			name = row.Path // two directories of one name
		}
		cells = append(cells, []string{row.Base, name, row.Applies, fmt.Sprint(row.Hunks), fmt.Sprint(row.Lines), row.Builds, row.tests(), row.attacks()})
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
