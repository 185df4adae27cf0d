// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"fmt"
	"strings"

	"rpcguard/scripts/patchset/internal/diff"
)

// subject is a commit's first line.
func subject(p *diff.Patch) string {
	return strings.Join(strings.Fields(p.Field(diff.FieldSubject)), " ")
}

// body is the rest of a commit message: the reason, the hooks, and where
// upstream stands.
func body(p *diff.Patch) string {
	var b strings.Builder
	b.WriteString(p.Field(diff.FieldReason) + "\n\nHooks:\n")
	for line := range strings.SplitSeq(p.Field(diff.FieldHooks), "\n") {
		if line != "" {
			b.WriteString("  " + line + "\n")
		}
	}
	fmt.Fprintf(&b, "\nUpstream-Status: %s\nRpcguard-Patch: %s\n", strings.Join(strings.Fields(p.Field(diff.FieldStatus)), " "), p.Name)
	return b.String()
}

func message(p *diff.Patch) string { return subject(p) + "\n\n" + body(p) }
