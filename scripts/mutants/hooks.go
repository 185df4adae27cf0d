// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// hunk is one hunk of a patch file, a patch of its own.
type hunk struct {
	name  string // patch, file and what the hunk is in
	patch string
}

var hunkRE = regexp.MustCompile(`^@@ [^@]* @@ ?(.*)$`)

// splitHunks takes a patch apart. Text before the first file is its header.
func splitHunks(patch, text string) (hunks []hunk) {
	var head []string // the file's two lines
	var file, body, where string
	flush := func() {
		if body != "" {
			name := fmt.Sprintf("hook/%s %s %d", patch, file, len(hunks)+1)
			if where != "" {
				name = fmt.Sprintf("hook/%s %s: %.40s", patch, file, where)
			}
			hunks = append(hunks, hunk{name, strings.Join(head, "\n") + "\n" + body})
		}
		body = ""
	}
	for _, line := range strings.Split(text, "\n") {
		switch m := hunkRE.FindStringSubmatch(line); {
		case strings.HasPrefix(line, "--- "):
			flush()
			head = []string{line}
		case strings.HasPrefix(line, "+++ "):
			head = append(head, line)
			file = strings.TrimPrefix(strings.TrimPrefix(line, "+++ "), "b/")
		case m != nil:
			flush()
			body, where = line+"\n", m[1]
		case strings.HasPrefix(line, "diff "), strings.HasPrefix(line, "index "):
			flush()
			head = nil
		case body != "" && (line == "" || strings.ContainsAny(line[:1], " +-\\")):
			if line != "" {
				body += line + "\n"
			}
		}
	}
	flush()
	return hunks
}

// hookMutants makes one of every hunk of the default series.
func hookMutants(dir string) (out []mutant, err error) {
	series, err := os.ReadFile(filepath.Join(dir, "series"))
	if err != nil {
		return nil, err
	}
	for _, name := range strings.Fields(string(series)) {
		name = strings.TrimSuffix(name, ".patch")
		text, err := os.ReadFile(filepath.Join(dir, name+".patch"))
		if err != nil {
			return nil, err
		}
		for _, h := range splitHunks(name, string(text)) {
			out = append(out, mutant{
				name: h.name,
				make: func(tree string) error {
					cmd := exec.Command("git", "apply", "-R", "--unidiff-zero", "--recount", "-")
					cmd.Dir = tree
					cmd.Stdin = strings.NewReader(h.patch)
					if out, err := cmd.CombinedOutput(); err != nil {
						return fmt.Errorf("%w: %s", err, out)
					}
					return nil
				},
				cases: hookCases[name],
			})
		}
	}
	return out, nil
}

// hookCases are the suite's cases that a patch is for.
var hookCases = map[string]string{
	"state":     "exact-refusals",
	"streams":   "pipelined-slow-calls,ws-client-leaves",
	"admission": "exact-refusals",
	"http":      "bodies-that-stall",
	"websocket": "connections-per-client,ws-fragments-slow",
	"reply":     "ws-blocks-never-read",
	"delivery":  "subscriber-stops",
	"filters":   "filter-flood,filter-overflow",
	"node":      "exact-refusals,graphql-slow-calls,slow-headers,h2-large-headers,ipc-half-close",
	"flags":     "exact-refusals",
	"tracers":   "block-trace,trace-after-leaving",
}
