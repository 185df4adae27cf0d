// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"bytes"
	"fmt"
	"go/build/constraint"
	"go/version"
	"os"
	"strings"
)

// Own files are written in the language of the pinned release. A tree whose
// go.mod names an older one would compile them as that: no range over integers,
// loop variables shared between iterations. A line "//go:build go1.N" raises
// the language of a single file, so a copy for such a tree gets one; the
// toolchain has to be that new anyway.

// goDirective returns the language version of a go.mod, such as "go1.25", ""
// if it names none.
func goDirective(data []byte) string {
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		if f := strings.Fields(string(line)); len(f) == 2 && f[0] == "go" {
			return version.Lang("go" + f[1])
		}
	}
	return ""
}

// raiseFor returns the language version to which own files have to be raised
// on a tree, "" if it speaks theirs.
func (r *repo) raiseFor(read reader) (string, error) {
	data, err := os.ReadFile(r.path("go.mod"))
	if err != nil {
		return "", err
	}
	theirs, err := read("go.mod")
	if err != nil {
		return "", err
	}
	ours := goDirective(data)
	if version.Compare(goDirective(theirs), ours) >= 0 {
		return "", nil
	}
	return ours, nil
}

// raise puts the build line into a Go file, below its first line, joined with a
// constraint that it has already.
func raise(name string, data []byte, lang string) ([]byte, error) {
	lines := bytes.SplitAfter(data, []byte("\n"))
	for i, line := range lines {
		text := strings.TrimSpace(string(line))
		if constraint.IsGoBuild(text) {
			expr, err := constraint.Parse(text)
			if err != nil {
				return nil, fmt.Errorf("own file %s: %w", name, err)
			}
			both := &constraint.AndExpr{X: expr, Y: &constraint.TagExpr{Tag: lang}}
			lines[i] = []byte("//go:build " + both.String() + "\n")
			return bytes.Join(lines, nil), nil
		}
		if text != "" && !strings.HasPrefix(text, "//") {
			break
		}
	}
	if len(lines) < 2 || !bytes.HasPrefix(lines[0], []byte("//")) {
		return nil, fmt.Errorf("own file %s: its first line is no comment", name)
	}
	head := append([]byte(nil), lines[0]...)
	head = append(head, "\n//go:build "+lang+"\n"...)
	if len(bytes.TrimSpace(lines[1])) != 0 {
		head = append(head, '\n')
	}
	return append(head, bytes.Join(lines[1:], nil)...), nil
}
