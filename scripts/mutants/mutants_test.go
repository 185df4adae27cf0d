// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const twoFiles = `why
--- a/rpc/x.go
+++ b/rpc/x.go
@@ -1,2 +1,3 @@ type handler struct
 a
+b
 c
@@ -9,1 +10,2 @@
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
	require.Equal(t, "hook/p rpc/x.go: type handler struct", hunks[0].name)
	require.Equal(t, "hook/p rpc/x.go 2", hunks[1].name)
	require.Equal(t, "--- a/rpc/x.go\n+++ b/rpc/x.go\n@@ -9,1 +10,2 @@\n d\n+e\n", hunks[1].patch)
	require.Equal(t, "--- a/node/y.go\n+++ b/node/y.go\n@@ -1 +1 @@ func New\n-f\n+g\n", hunks[2].patch)
}

func TestEveryHunkIsAMutant(t *testing.T) {
	dir := filepath.Join("..", "..", "patches")
	ms, err := hookMutants(dir)
	require.NoError(t, err)
	series, err := os.ReadFile(filepath.Join(dir, "series"))
	require.NoError(t, err)
	want := 0
	for _, name := range strings.Fields(string(series)) {
		text, err := os.ReadFile(filepath.Join(dir, strings.TrimSuffix(name, ".patch")+".patch"))
		require.NoError(t, err)
		want += strings.Count("\n"+string(text), "\n@@ ")
	}
	require.Len(t, ms, want)
}

// The overlay is linked into the tree: a mutant must not write through the link.
func TestRewriteReplacesLinks(t *testing.T) {
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real.go"), filepath.Join(dir, "link.go")
	require.NoError(t, os.WriteFile(real, []byte("a"), 0o644))
	require.NoError(t, os.Symlink(real, link))
	require.NoError(t, rewrite(link, func(s string) (string, error) { return s + "b", nil }))
	src, err := os.ReadFile(real)
	require.NoError(t, err)
	require.Equal(t, "a", string(src))
	src, err = os.ReadFile(link)
	require.NoError(t, err)
	require.Equal(t, "ab", string(src))
}

// Every field of the configuration that is a limit has a mutant, and the place
// where they are set is still there.
func TestLimitMutantsFitTheSource(t *testing.T) {
	src, err := os.ReadFile(filepath.Join("..", "..", "rpc", "guard.go"))
	require.NoError(t, err)
	_, err = insertAfter(string(src), anchor, "x")
	require.NoError(t, err)
	_, err = insertAfter("", anchor, "x")
	require.Error(t, err)
}

func TestFailedNamesTests(t *testing.T) {
	require.Equal(t, "TestA, TestB", failed("x\n--- FAIL: TestA (0.1s)\n    y\n--- FAIL: TestB (0s)\nFAIL\n"))
	require.Equal(t, "panic: z", failed("panic: z\n"))
}
