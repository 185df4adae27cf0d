// SPDX-License-Identifier: LGPL-3.0-or-later

package diff

import (
	"math/rand"
	"slices"
	"strings"
	"testing"
)

const sample = `package shop

import "fmt"

// counter counts.
type counter struct {
	n int
}

type (
	// shelf holds.
	shelf struct {
		n int
	}
	price int
)

var (
	open  = true
	limit = 3
)

// sell sells one.
func (c *counter) sell() {
	c.n++
}

func (s shelf) put() {
	s.n++
	fmt.Println(s)
}

func total[T any](a []T) int {
	text := ` + "`" + `
func fake() {
` + "`" + `
	return len(text)
}
`

func TestDecls(t *testing.T) {
	lines := Split(sample)
	got := Decls("a.go", lines)
	want := map[string]string{
		"// counter counts.":     "type counter",
		"type counter struct {":  "type counter",
		"\t// shelf holds.":      "type shelf",
		"\tshelf struct {":       "type shelf",
		"\tprice int":            "type price",
		"\tlimit = 3":            "var limit",
		"// sell sells one.":     "func (*counter) sell",
		"\tc.n++":                "func (*counter) sell",
		"\ts.n++":                "func (shelf) put",
		"func fake() {":          "func total",
		"\treturn len(text)":     "func total",
		"import \"fmt\"":         "import",
		"package shop":           "",
		"func (s shelf) put() {": "func (shelf) put",
	}
	for line, decl := range want {
		i := slices.Index(lines, line+"\n")
		if i < 0 {
			t.Fatalf("no line %q", line)
		}
		if got[i] != decl {
			t.Errorf("line %q is in %q, want %q", line, got[i], decl)
		}
	}
	for _, d := range Decls("a.txt", lines) {
		if d != "" {
			t.Fatal("a text file has declarations")
		}
	}
}

// change builds the section for one replacement in the sample.
func change(t *testing.T, old, with string) *File {
	t.Helper()
	if strings.Count(sample, old) != 1 {
		t.Fatalf("%q is not unique in the sample", old)
	}
	f := Make("a.go", sample, strings.Replace(sample, old, with, 1))
	if len(f.Hunks) != 1 {
		t.Fatalf("%d hunks, want 1", len(f.Hunks))
	}
	return f
}

func TestMakeNamesDeclaration(t *testing.T) {
	for _, tt := range []struct{ old, with, decl string }{
		{"\ts.n++\n", "\tguard()\n\ts.n++\n", "func (shelf) put"},
		{"func (c *counter) sell(", "func (c *counter) sellUnguarded(", "func (*counter) sell"},
		{"\tlimit = 3\n", "\tlimit = 4\n", "var limit"},
		{"type counter struct {\n", "type counter struct {\n\tguard int\n", "type counter"},
	} {
		f := change(t, tt.old, tt.with)
		if got := f.Hunks[0].Decl; got != tt.decl {
			t.Errorf("%q: declaration %q, want %q", tt.old, got, tt.decl)
		}
		text, misses := f.Apply(sample, false)
		if misses != nil {
			t.Errorf("%q does not apply to its own origin: %v", tt.old, misses[0])
		}
		back, misses := f.Apply(text, true)
		if misses != nil || back != sample {
			t.Errorf("%q does not come out again: %v", tt.old, misses)
		}
	}
}

// The trap that fuzz falls into: the function is gone, a neighbour holds the
// same lines.
func TestWrongFunctionRefused(t *testing.T) {
	f := change(t, "\ts.n++\n", "\tguard()\n\ts.n++\n")
	// Make both bodies alike, then take the right one away.
	f.Hunks[0].Lines = []Line{{' ', "func (x) f() {\n"}, {'+', "\tguard()\n"}, {' ', "\ts.n++\n"}}
	f.Hunks[0].Decl = "func (shelf) put"
	text := "package shop\n\nfunc (x) f() {\n\ts.n++\n}\n"
	_, misses := f.Apply(text, false)
	if len(misses) != 1 {
		t.Fatal("placed in the wrong function")
	}
	if msg := misses[0].Error(); !strings.Contains(msg, "not in func (shelf) put") || !strings.Contains(msg, "line 3") {
		t.Errorf("message does not say where it would have gone: %s", msg)
	}
}

func TestOffsetTakenAmbiguityRefused(t *testing.T) {
	f := change(t, "\ts.n++\n", "\tguard()\n\ts.n++\n")
	moved := strings.Replace(sample, "import", strings.Repeat("// moved\n", 50)+"import", 1)
	if _, misses := f.Apply(moved, false); misses != nil {
		t.Errorf("an offset of 50 lines: %v", misses[0])
	}
	twice := strings.Replace(sample, "\ts.n++\n", "\ts.n++\n\tif true {\nfunc (s shelf) put() {\n\ts.n++\n", 1)
	if _, misses := f.Apply(twice, false); misses == nil {
		t.Error("two places in one function: took one")
	} else if !strings.Contains(misses[0].Error(), "2 places") {
		t.Error(misses[0])
	}
}

func TestNearestTextNamed(t *testing.T) {
	f := change(t, "\ts.n++\n", "\tguard()\n\ts.n++\n")
	other := strings.Replace(sample, "\ts.n++\n", "\ts.n += 2\n", 1)
	_, misses := f.Apply(other, false)
	if len(misses) != 1 || misses[0].Near == 0 || !strings.Contains(misses[0].Error(), "s.n += 2") {
		t.Errorf("the nearest text is not told: %v", misses)
	}
}

func TestCRLFNamed(t *testing.T) {
	f := change(t, "\ts.n++\n", "\tguard()\n\ts.n++\n")
	_, misses := f.Apply(strings.ReplaceAll(sample, "\n", "\r\n"), false)
	if len(misses) != 1 || !strings.Contains(misses[0].Error(), "CRLF") {
		t.Errorf("want CRLF named: %v", misses)
	}
}

// A hunk whose one line of context fits twice in its function gets more.
func TestContextGrowsWhereAmbiguous(t *testing.T) {
	from := "package p\n\nfunc f() {\n\ta()\n\tx()\n\ty()\n\tb()\n\tx()\n\ty()\n\tc()\n}\n"
	to := strings.Replace(from, "\tb()\n\tx()\n", "\tb()\n\tx()\n\tguard()\n", 1)
	f := Make("a.go", from, to)
	if len(f.Hunks) != 1 || len(f.Hunks[0].Old()) <= 2 {
		t.Fatalf("context did not grow: %+v", f.Hunks[0])
	}
	got, misses := f.Apply("// one line above\n"+from, false)
	if misses != nil || got != "// one line above\n"+to {
		t.Errorf("not placed: %v\n%s", misses, got)
	}
}

func TestNoNewlineAtEnd(t *testing.T) {
	from, to := "a\nb\nc", "a\nb\nguard\nc"
	f := Make("x.txt", from, to)
	data := (&Patch{Head: head, Files: []*File{f}}).Format()
	p, err := Parse("x", data)
	if err != nil {
		t.Fatal(err)
	}
	if got, misses := p.Files[0].Apply(from, false); misses != nil || got != to {
		t.Errorf("got %q, %v", got, misses)
	}
	if _, misses := p.Files[0].Apply(from+"\n", false); misses == nil {
		t.Error("a last line with a newline taken for one without")
	}
}

const head = "Subject: shop: a thing\nReason: because\n it must\nHooks: a.go counter\nUpstream-Status: not offered\n"

func TestParseKeepsBytes(t *testing.T) {
	text := head + "---\ndiff --git a/a.go b/a.go\nindex 123..456 100644\n--- a/a.go\n+++ b/a.go\n@@ -3 +3 @@ type counter\n-x\n+y\n@@ -9,2 +9,3 @@ odd section {\n a\n+b\n c\n"
	p, err := Parse("x", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(p.Format()); got != text {
		t.Errorf("written back differently:\n%s", got)
	}
	if p.Field(FieldReason) != "because\nit must" {
		t.Errorf("reason %q", p.Field(FieldReason))
	}
	if d := p.Files[0].Hunks[1].Decl; d != "" {
		t.Errorf("git's own section text taken for a declaration: %q", d)
	}
	if p.Hunks() != 2 || p.Touched() != 3 {
		t.Errorf("%d hunks, %d lines", p.Hunks(), p.Touched())
	}
}

func TestParseRefuses(t *testing.T) {
	body := "---\ndiff --git a/a.go b/a.go\n--- a/a.go\n+++ b/a.go\n"
	for name, text := range map[string]string{
		"no header":   body + "@@ -1 +1 @@\n-a\n+b\n",
		"CRLF":        strings.ReplaceAll(head+body+"@@ -1 +1 @@\n-a\n+b\n", "\n", "\r\n"),
		"no diff":     head + "---\n",
		"no hunk":     head + body,
		"counts":      head + body + "@@ -1,3 +1,3 @@\n-a\n+b\n",
		"no change":   head + body + "@@ -1 +1 @@\n a\n",
		"new file":    head + "---\ndiff --git a/n.go b/n.go\nnew file mode 100644\n--- /dev/null\n+++ b/n.go\n@@ -0,0 +1 @@\n+a\n",
		"rename":      head + "---\ndiff --git a/a.go b/b.go\n@@ -1 +1 @@\n-a\n+b\n",
		"outside":     head + "---\ndiff --git a/../a.go b/../a.go\n@@ -1 +1 @@\n-a\n+b\n",
		"absolute":    head + "---\ndiff --git a//a.go b//a.go\n@@ -1 +1 @@\n-a\n+b\n",
		"stray lines": head + body + "@@ -1 +1 @@\n-a\n+b\nwhat\n",
		"twice":       head + body + "@@ -1 +1 @@\n-a\n+b\n" + strings.TrimPrefix(body, "---\n") + "@@ -1 +1 @@\n-a\n+b\n",
	} {
		if _, err := Parse("x", []byte(text)); err == nil {
			t.Errorf("%s: taken", name)
		} else if !strings.HasPrefix(err.Error(), "patch x, line ") {
			t.Errorf("%s: error names no place: %v", name, err)
		}
	}
}

// Random texts over few distinct lines, so that nearly everything is ambiguous:
// the section made for a change gives exactly the new text on the old one and,
// taken out, the old one again. Against a hunk in the wrong place there is no
// better test.
func TestMakeApplyModel(t *testing.T) {
	const seed = 7
	rnd := rand.New(rand.NewSource(seed))
	words := []string{"\ta()\n", "\tb()\n", "\tc()\n", "}\n", "\n", "func f() {\n", "func g() {\n"}
	refused := 0
	for range 3000 {
		var lines []string
		for range 1 + rnd.Intn(40) {
			lines = append(lines, words[rnd.Intn(len(words))])
		}
		next := slices.Clone(lines)
		for range 1 + rnd.Intn(3) {
			switch i := rnd.Intn(len(next)); rnd.Intn(3) {
			case 0:
				next = slices.Insert(next, i, "\tguard()\n")
			case 1:
				next[i] = words[rnd.Intn(len(words))]
			default:
				if len(next) > 1 {
					next = slices.Delete(next, i, i+1)
				}
			}
		}
		from, to := Join(lines), Join(next)
		f := Make("m.go", from, to)
		if from == to {
			if f != nil {
				t.Fatalf("seed %d: a section for no change", seed)
			}
			continue
		}
		p, err := Parse("m", (&Patch{Head: head, Files: []*File{f}}).Format())
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		got, misses := p.Files[0].Apply(from, false)
		if misses != nil {
			refused++ // still ambiguous with all the context it may have
			continue
		}
		if got != to {
			t.Fatalf("seed %d: from\n%s\nwant\n%s\ngot\n%s", seed, from, to, got)
		}
		if back, misses := p.Files[0].Apply(got, true); misses == nil && back != from {
			t.Fatalf("seed %d: taken out wrongly: from\n%s\nvia\n%s\nback\n%s", seed, from, to, back)
		}
	}
	if refused > 300 {
		t.Errorf("seed %d: %d of 3000 refused, so the test says little", seed, refused)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(head + "---\ndiff --git a/a.go b/a.go\n--- a/a.go\n+++ b/a.go\n@@ -1,2 +1,3 @@ type counter\n a\n+b\n c\n\\ No newline at end of file\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse("x", data)
		if err != nil {
			return
		}
		again, err := Parse("x", p.Format())
		if err != nil {
			t.Fatalf("what was written is not read again: %v", err)
		}
		if string(again.Format()) != string(p.Format()) {
			t.Fatal("not stable")
		}
		for _, s := range p.Files {
			s.Apply("a\nb\nc\n", false)
			s.Apply("a\nb\nc\n", true)
		}
	})
}
