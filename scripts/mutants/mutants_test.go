// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const twoFiles = `why
--- a/rpc/x.go
+++ b/rpc/x.go
@@ -1,2 +1,3 @@ type handler
 a
+b
 c
@@ -9,1 +10,2 @@ type handler
 d
+e
--- a/node/y.go
+++ b/node/y.go
@@ -1 +1 @@ func New
-f
+g
`

func TestSplitHunks(t *testing.T) {
	hunks := splitHunks("p", twoFiles)
	require.Len(t, hunks, 3)
	require.Equal(t, "hook/p rpc/x.go handler", hunks[0].name)
	require.Equal(t, "hook/p rpc/x.go handler 2", hunks[1].name)
	require.Equal(t, "hook/p node/y.go New", hunks[2].name)
	before, after := hunks[0].sides()
	require.Equal(t, "a\nc\n", before)
	require.Equal(t, "a\nb\nc\n", after)
}

// fork lays a tree of two files.
func fork(t *testing.T, upstream, own string) string {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "rpc"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rpc", "x.go"), []byte(upstream), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rpc", "guard.go"), []byte(own), 0o644))
	return dir
}

func TestSwitches(t *testing.T) {
	own := "package rpc\n\nfunc (c *codec) Notify(id ID, data ...any) error {\n\treturn nil\n}\n\nfunc (h *handler) run() {\n}\n"
	for name, c := range map[string]struct {
		lines []string
		file  string
		want  string
	}{
		"added statement": {[]string{" a", "+b(c) // rpcguard", " d"}, "rpc/x.go",
			"a\nif mutant(\"m\") {\n} else {\nb(c) // rpcguard\n}\nd\n"},
		"added condition": {[]string{" a", "+if err := b(); err != nil {", "+\treturn err", "+}"}, "rpc/x.go",
			"a\nif mutant(\"m\") {\n} else {\nif err := b(); err != nil {\n\treturn err\n}\n}\n"},
		"changed statement": {[]string{" a", "-b", "+c", " d"}, "rpc/x.go",
			"a\nif mutant(\"m\") {\nb\n} else {\nc\n}\nd\n"},
		"element": {[]string{" a", "+\tguard:   cfg.guard, // rpcguard"}, "rpc/x.go",
			"a\n\tguard:   mutantOr(\"m\", nil, cfg.guard),\n"},
		"renamed": {[]string{" a", "-func (c *codec) Notify(id ID, data ...any) error {", "+func (c *codec) notifyUnguarded(id ID, data ...any) error {"}, "rpc/guard.go",
			"func (c *codec) Notify(id ID, data ...any) error {\n\tif mutant(\"m\") {\n\t\treturn c.notifyUnguarded(id, data...)\n\t}"},
		"renamed, no result": {[]string{"-func (h *handler) run() {", "+func (h *handler) runUnguarded() {"}, "rpc/guard.go",
			"func (h *handler) run() {\n\tif mutant(\"m\") {\n\t\th.runUnguarded()\n\t\treturn\n\t}"},
		"field":    {[]string{" a", "+\tguard *Guard // rpcguard"}, "", ""},
		"declared": {[]string{"-\ta := b()", "+\ta := c()"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := hookMutant(hunk{"m", "rpc/x.go", c.lines}, fork(t, "", own))
			require.NoError(t, err)
			require.Equal(t, "./rpc", m.pkg)
			require.Len(t, m.undo, 1)
			if c.file == "" {
				require.False(t, m.switched(), "%v", m.edits)
				return
			}
			require.Len(t, m.edits, 1)
			require.Equal(t, c.file, m.edits[0].file)
			require.Equal(t, c.want, m.edits[0].new)
		})
	}
	_, err := hookMutant(hunk{"m", "rpc/x.go", []string{"-func (h *handler) gone() {", "+func (h *handler) goneUnguarded() {"}}, fork(t, "", own))
	require.ErrorContains(t, err, "no wrapper of gone")
}

func TestEditWantsExactlyOne(t *testing.T) {
	_, err := edit{"f", "a", "b"}.apply("c")
	require.ErrorContains(t, err, "0 times")
	_, err = edit{"f", "a", "b"}.apply("aa")
	require.ErrorContains(t, err, "2 times")
	got, err := edit{"f", "a", "b"}.apply("cac")
	require.NoError(t, err)
	require.Equal(t, "cbc", got)
}

// Every limit in the code is still where the mutant expects it.
func TestLimitsFitTheSource(t *testing.T) {
	root := filepath.Join("..", "..")
	names := make(map[string]bool)
	for _, l := range built {
		src, err := os.ReadFile(filepath.Join(root, l.file))
		require.NoError(t, err)
		assert.Equal(t, 1, strings.Count(string(src), l.on), "%s: %q in %s", l.name, l.on, l.file)
		require.Contains(t, l.off, `"limit/`+l.name+`"`)
		require.False(t, names[l.name], l.name)
		names[l.name] = true
	}
	for _, l := range configured {
		require.False(t, names[l.name], l.name)
		names[l.name] = true
	}
	src, err := os.ReadFile(filepath.Join(root, "rpc", "guard.go"))
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(src), anchor))
}

// A pin that names no test any more would let the search run for nothing.
func TestPinsNameTests(t *testing.T) {
	root := filepath.Join("..", "..")
	pins, err := readPins(filepath.Join(root, pinsPath))
	require.NoError(t, err)
	for name, p := range pins {
		if p.suite != "" {
			continue
		}
		own, err := ownTests(root, p.pkg)
		require.NoError(t, err)
		require.Contains(t, own, p.test, "of %s", name)
	}
}

func TestPinsAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pins")
	pins := map[string]pin{"a b": {pkg: "./rpc", test: "TestX"}, "c": {suite: "case"}, "old": {suite: "x"}}
	require.NoError(t, writePins(path, pins, []*mutant{{name: "c"}, {name: "a b"}, {name: "d"}}))
	got, err := readPins(path)
	require.NoError(t, err)
	delete(pins, "old")
	require.Equal(t, pins, got)
	require.NoError(t, os.WriteFile(path, []byte("nonsense\n"), 0o644))
	_, err = readPins(path)
	require.ErrorContains(t, err, ":1:")
}

func TestFailedNamesTests(t *testing.T) {
	require.Equal(t, "TestA, TestB", failed("x\n--- FAIL: TestA (0.1s)\n    y\n--- FAIL: TestB (0s)\nFAIL\n"))
	require.Equal(t, "panic: z", failed("panic: z\n"))
	require.Equal(t, "TestC", firstFailed("panic: test timed out after 1s\n\trunning tests:\n\t\tTestC/sub (1s)\n"))
	require.Equal(t, "TestD", firstFailed("panic: z\n\ngoroutine 7 [running]:\nx/rpc.TestD.func1(...)\n"))
}

func TestLikelyTestsGoFirst(t *testing.T) {
	likely, rest := byName("limit/stall.window", []string{"TestGuardStallModel", "TestStreamWindowEnds", "TestClassify"})
	require.Equal(t, []string{"TestGuardStallModel", "TestStreamWindowEnds"}, likely)
	require.Equal(t, []string{"TestClassify"}, rest)
}

func TestReachOrdersTests(t *testing.T) {
	require.Equal(t, []string{"limit/a b", "config"}, reached("=== RUN\n\nreached: limit/a b\nlog\nreached: config\nPASS\n"))
	quick, slow := slowTest/2, 2*slowTest
	r := reach{
		"limit/stall.window": {{"TestClassify", quick}, {"TestGuardStallModel", quick}, {"TestStallSlow", slow}},
		everyConfig:          {{"TestClassify", quick}},
	}
	require.Equal(t, [][]timedTest{{{"TestGuardStallModel", quick}}, {{"TestClassify", quick}}, {{"TestStallSlow", slow}}},
		r.of(&mutant{name: "limit/stall.window"}))
	require.Equal(t, [][]timedTest{nil, {{"TestClassify", quick}}}, r.of(&mutant{name: "limit/sub.max", config: "x"}))
	require.Equal(t, 5*time.Second+4*quick, patience([]timedTest{{"TestClassify", quick}}))
}
