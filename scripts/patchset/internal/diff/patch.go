// SPDX-License-Identifier: LGPL-3.0-or-later

package diff

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Line is one line of a hunk: Op is ' ' (context), '-' or '+'; Text keeps its
// terminator.
type Line struct {
	Op   byte
	Text string
}

// Hunk is one change. Starts are line numbers from 1 as in a unified diff;
// Decl is the declaration it changes, "" if it names none.
type Hunk struct {
	OldStart, NewStart int
	Decl               string
	Lines              []Line
	Alt                []*Hunk // the same change in other surroundings, tried in this order
}

// Old returns the lines that the hunk expects to find.
func (h *Hunk) Old() []string { return h.side('+') }

// New returns the lines that it leaves.
func (h *Hunk) New() []string { return h.side('-') }

func (h *Hunk) side(without byte) []string {
	var out []string
	for _, l := range h.Lines {
		if l.Op != without {
			out = append(out, l.Text)
		}
	}
	return out
}

// Touched counts the lines that the hunk adds and removes.
func (h *Hunk) Touched() int {
	n := 0
	for _, l := range h.Lines {
		if l.Op != ' ' {
			n++
		}
	}
	return n
}

// Header is the hunk's first line, without its end.
func (h *Hunk) Header() string {
	s := fmt.Sprintf("@@ -%d,%d +%d,%d @@", h.OldStart, len(h.Old()), h.NewStart, len(h.New()))
	if h.Decl != "" {
		s += " " + h.Decl
	}
	return s
}

// File is what a patch does to one file, which has to exist. Text is the
// section as it was read, so that what nobody changed is written back byte for
// byte; "" makes Format write it from the hunks.
type File struct {
	Path  string
	Hunks []*Hunk
	Text  string
}

func (f *File) format() string {
	if f.Text != "" {
		return f.Text
	}
	var b strings.Builder
	fmt.Fprintf(&b, "diff --git a/%s b/%s\n--- a/%s\n+++ b/%s\n", f.Path, f.Path, f.Path, f.Path)
	for _, h := range f.Hunks {
		b.WriteString(h.Header() + "\n")
		for _, l := range h.Lines {
			b.WriteByte(l.Op)
			b.WriteString(l.Text)
			if !strings.HasSuffix(l.Text, "\n") {
				b.WriteString("\n\\ No newline at end of file\n")
			}
		}
	}
	return b.String()
}

// Patch is one file of patches/: a header of "Field: text" lines (a line that
// begins with a blank continues the field), a line "---", and the diff.
type Patch struct {
	Name  string
	Head  string // header as read, the line "---" not included
	Files []*File
}

// The fields of a header. All but FieldFiles have to be there.
const (
	FieldSubject = "Subject"         // one line in geth's style: "rpc: ..."
	FieldReason  = "Reason"          // why upstream's lines have to change at all
	FieldHooks   = "Hooks"           // the places, for a reader of the commit message
	FieldStatus  = "Upstream-Status" // whether upstream was offered it, with what answer
	FieldFiles   = "Files"           // own files (path patterns) that arrive with this patch
)

// Field returns a header field with its continuation lines joined by newlines.
func (p *Patch) Field(name string) string {
	var out []string
	in := false
	for line := range strings.SplitSeq(p.Head, "\n") {
		switch {
		case strings.HasPrefix(line, name+":"):
			in = true
			out = append(out, strings.TrimSpace(strings.TrimPrefix(line, name+":")))
		case in && (strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t")):
			out = append(out, strings.TrimSpace(line))
		default:
			in = false
		}
	}
	return strings.TrimSpace(strings.Join(out, "\n"))
}

// File returns the section for a path, or nil.
func (p *Patch) File(path string) *File {
	for _, f := range p.Files {
		if f.Path == path {
			return f
		}
	}
	return nil
}

// Put sets the section for a path, or removes it where f is nil. A new one goes
// before the first path that sorts after it.
func (p *Patch) Put(path string, f *File) {
	for i, old := range p.Files {
		if old.Path != path {
			continue
		}
		if f == nil {
			p.Files = slices.Delete(p.Files, i, i+1)
		} else {
			p.Files[i] = f
		}
		return
	}
	if f == nil {
		return
	}
	at := slices.IndexFunc(p.Files, func(old *File) bool { return old.Path > path })
	if at < 0 {
		at = len(p.Files)
	}
	p.Files = slices.Insert(p.Files, at, f)
}

// Hunks counts the hunks of all files.
func (p *Patch) Hunks() int {
	n := 0
	for _, f := range p.Files {
		n += len(f.Hunks)
	}
	return n
}

// Touched counts the lines added and removed in all files.
func (p *Patch) Touched() int {
	n := 0
	for _, f := range p.Files {
		for _, h := range f.Hunks {
			n += h.Touched()
		}
	}
	return n
}

// Format writes the patch as its file holds it.
func (p *Patch) Format() []byte {
	return append([]byte(strings.TrimRight(p.Head, "\n")+"\n---\n"), p.Diff()...)
}

// Diff is the patch without its header.
func (p *Patch) Diff() []byte {
	var b strings.Builder
	for _, f := range p.Files {
		b.WriteString(f.format())
	}
	return []byte(b.String())
}

var (
	hunkLine = regexp.MustCompile(`^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@ ?(.*)$`)
	declName = regexp.MustCompile(`^(func (\(\*?\w+\) )?\w+|(type|var|const) \w+|type|var|const|import)$`)
)

// Parse reads a patch file. It takes only what this repository uses: changes of
// existing files, no renames, modes, binaries or new files (those are own files
// and never stand in a patch).
func Parse(name string, data []byte) (*Patch, error) {
	p, err := ParseVariant(name, data)
	if err != nil {
		return nil, err
	}
	for _, field := range []string{FieldSubject, FieldReason, FieldHooks, FieldStatus} {
		if p.Field(field) == "" {
			return nil, fmt.Errorf("patch %s, line 1: header has no %s: field", name, field)
		}
	}
	return p, nil
}

// ParseVariant reads a patch file of a base, whose header may say anything: what
// counts is that of the patch it varies.
func ParseVariant(name string, data []byte) (*Patch, error) {
	text := string(data)
	fail := func(line int, format string, a ...any) (*Patch, error) {
		return nil, fmt.Errorf("patch %s, line %d: %s", name, line, fmt.Sprintf(format, a...))
	}
	if strings.Contains(text, "\r\n") {
		return fail(1, "CRLF line ends; patches are kept with LF")
	}
	p := &Patch{Name: name}
	// One without a diff only brings own files.
	head, body, ok := strings.Cut(text, "\n---\n")
	if !ok {
		return fail(1, "no line \"---\" between header and diff")
	}
	p.Head = head + "\n"
	var (
		lines = Split(body)
		at    = strings.Count(head, "\n") + 3
		file  *File
		start int
	)
	closeFile := func(end int) {
		if file != nil {
			file.Text = Join(lines[start:end])
		}
	}
	for i := 0; i < len(lines); {
		line := strings.TrimSuffix(lines[i], "\n")
		switch {
		case strings.HasPrefix(line, "diff --git "):
			closeFile(i)
			start = i
			a, b, _ := strings.Cut(strings.TrimPrefix(line, "diff --git a/"), " b/")
			if a != b || a == "" || path.Clean(a) != a || path.IsAbs(a) || strings.HasPrefix(a, "..") {
				return fail(at+i, "%q does not name one file on both sides", line)
			}
			if p.File(a) != nil {
				return fail(at+i, "%s has a second section", a)
			}
			file = &File{Path: a}
			p.Files = append(p.Files, file)
			i++
		case file != nil && (strings.HasPrefix(line, "index ")):
			i++
		case file != nil && (line == "--- a/"+file.Path || line == "+++ b/"+file.Path):
			i++
		case file != nil && hunkLine.MatchString(line):
			m := hunkLine.FindStringSubmatch(line)
			h := &Hunk{OldStart: number(m[1]), NewStart: number(m[3])}
			if declName.MatchString(m[5]) {
				h.Decl = m[5]
			}
			oldN, newN := 1, 1
			if m[2] != "" {
				oldN = number(m[2])
			}
			if m[4] != "" {
				newN = number(m[4])
			}
			first := i
			for i++; i < len(lines) && (oldN > 0 || newN > 0 || strings.HasPrefix(lines[i], "\\")); i++ {
				op, rest := lines[i][0], lines[i][1:]
				switch op {
				case '\\':
					last := &h.Lines[len(h.Lines)-1]
					last.Text = strings.TrimSuffix(last.Text, "\n")
					continue
				case ' ':
					oldN, newN = oldN-1, newN-1
				case '-':
					oldN--
				case '+':
					newN--
				case '\n': // an empty context line whose blank an editor has cut off
					oldN, newN, rest = oldN-1, newN-1, "\n"
					op = ' '
				default:
					return fail(at+i, "%q inside a hunk", strings.TrimSuffix(lines[i], "\n"))
				}
				h.Lines = append(h.Lines, Line{op, rest})
			}
			if oldN != 0 || newN != 0 {
				return fail(at+first, "%s does not fit the lines below it", line)
			}
			if h.Touched() == 0 {
				return fail(at+first, "%s changes nothing", line)
			}
			file.Hunks = append(file.Hunks, h)
		default:
			return fail(at+i, "%q is not understood: a patch changes existing text files and nothing else", line)
		}
	}
	closeFile(len(lines))
	if len(p.Files) == 0 && p.Field(FieldFiles) == "" {
		return fail(at, "no diff and no own files; a patch that changes nothing is not kept")
	}
	for _, f := range p.Files {
		if len(f.Hunks) == 0 {
			return fail(at, "%s has no hunk", f.Path)
		}
	}
	return p, nil
}

func number(s string) int {
	n, _ := strconv.Atoi(s) // only digits come here; a number too long ends as one that fits nowhere
	return n
}
