// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"rpcguard/scripts/patchset/internal/diff"
	"rpcguard/scripts/patchset/internal/git"
	"rpcguard/scripts/patchset/internal/tree"
)

// writeSeries writes the set for the pinned release as mails that git am takes,
// own files included. The bytes depend on the set alone.
func (r *repo) writeSeries(dir, base string, out io.Writer) error {
	version, err := r.pin()
	if err != nil {
		return err
	}
	src, _, err := r.upstream(version)
	if err != nil {
		return err
	}
	p, err := r.planFor(src, base)
	if err != nil {
		return err
	}
	mails := make(map[string][]byte)
	var told []string
	for i, q := range p.set.Patches {
		own, err := p.ownChanges(i)
		if err != nil {
			return err
		}
		mail, err := mail(q, own, i+1, len(p.set.Patches))
		if err != nil {
			return err
		}
		name := fmt.Sprintf("%04d-%s.patch", i+1, q.Name)
		mails[name] = mail
		told = append(told, fmt.Sprintf("%s: %d hunks, %d own files", name, q.Hunks(), len(own)))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	old, err := oldMails(dir)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(mails)) {
		if err := os.WriteFile(filepath.Join(dir, name), mails[name], 0o644); err != nil {
			return err
		}
	}
	for _, name := range old {
		if mails[name] == nil {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	fmt.Fprintln(out, strings.Join(told, "\n"))
	fmt.Fprintf(out, "for %s: git am %s/*.patch\n", version, dir)
	return nil
}

// mailHead begins every mail of ours and, by its From: line, nobody else's.
var mailHead = fmt.Sprintf("From %s Mon Sep 17 00:00:00 2001\nFrom: %s <%s>\n", strings.Repeat("0", 40), git.Name, git.Email)

var mailName = regexp.MustCompile(`^[0-9]{4}-.+\.patch$`)

// oldMails lists what an earlier run left in a directory, which may hold nothing
// else: git am is given all that lies there, and what is removed has to be ours.
func oldMails(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if e.Type().IsRegular() && mailName.MatchString(e.Name()) {
			data, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return nil, err
			}
			if bytes.HasPrefix(data, []byte(mailHead)) {
				out = append(out, e.Name())
				continue
			}
		}
		return nil, fmt.Errorf("%s holds %s, which is no part of a series of ours; name an empty directory with --out", dir, e.Name())
	}
	return out, nil
}

// mail is one patch as git format-patch would send it.
func mail(p *diff.Patch, own []tree.Change, n, of int) ([]byte, error) {
	text := body(p)
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(line, "---") || strings.HasPrefix(line, "diff ") || strings.HasPrefix(line, "From ") || strings.HasPrefix(line, "Index: ") {
			return nil, fmt.Errorf("patch %s: the header line %q would end the message of a mail; reword it", p.Name, line)
		}
	}
	for _, c := range subject(p) {
		if c > 0x7e {
			return nil, fmt.Errorf("patch %s: %q in the subject; a subject is plain ASCII", p.Name, c)
		}
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%sDate: %s\nSubject: [PATCH %d/%d] %s\n", mailHead, git.MailDate, n, of, subject(p))
	fmt.Fprintf(&b, "MIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8\nContent-Transfer-Encoding: 8bit\n\n%s---\n\n", text)
	b.Write(p.Diff())
	for _, c := range own {
		if bytes.Contains(c.Data, []byte("\r")) || bytes.IndexByte(c.Data, 0) >= 0 {
			return nil, fmt.Errorf("own file %s holds CR or NUL bytes, which a mail does not carry", c.Path)
		}
		lines := diff.Split(string(c.Data))
		fmt.Fprintf(&b, "diff --git a/%s b/%s\nnew file mode 100644\n", c.Path, c.Path)
		if len(lines) == 0 {
			fmt.Fprintf(&b, "index 0000000..e69de29\n")
			continue
		}
		fmt.Fprintf(&b, "--- /dev/null\n+++ b/%s\n@@ -0,0 +1,%d @@\n", c.Path, len(lines))
		for _, l := range lines {
			b.WriteString("+" + l)
			if !strings.HasSuffix(l, "\n") {
				b.WriteString("\n\\ No newline at end of file\n")
			}
		}
	}
	b.WriteString("-- \nrpcguard\n\n")
	return b.Bytes(), nil
}
