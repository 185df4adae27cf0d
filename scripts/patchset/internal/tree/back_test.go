// SPDX-License-Identifier: LGPL-3.0-or-later

package tree

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// killed carries the changes out up to step n, as a run that was killed there.
func killed(t *testing.T, tr *Tree, changes []Change, n int) {
	t.Helper()
	step := 0
	stop = func(string) error {
		if step++; step > n {
			panic("killed")
		}
		return nil
	}
	defer func() { stop = nil; recover() }()
	if err := tr.Write(changes, "", nil); err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, tr *Tree, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(tr.Root(), name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// What somebody did after a kill is theirs: nothing is put back over it, nor around it.
func TestBackLeavesWorkAlone(t *testing.T) {
	for what, change := range map[string]func(root string) error{
		"a.go": func(root string) error { return os.WriteFile(filepath.Join(root, "a.go"), []byte("my work"), 0o644) },
		"new/e.go": func(root string) error {
			return os.WriteFile(filepath.Join(root, "new/e.go"), []byte("my work"), 0o644)
		},
		"rpc/old/c.go": func(root string) error {
			return errors.Join(os.MkdirAll(filepath.Join(root, "rpc/old"), 0o755), os.WriteFile(filepath.Join(root, "rpc/old/c.go"), []byte("my work"), 0o644))
		},
		"rpc/b.go": func(root string) error {
			return errors.Join(os.Remove(filepath.Join(root, "rpc/b.go")), os.MkdirAll(filepath.Join(root, "rpc/b.go"), 0o755))
		},
		"new/deep": func(root string) error {
			return errors.Join(os.RemoveAll(filepath.Join(root, "new/deep")), os.Symlink("/", filepath.Join(root, "new/deep")))
		},
	} {
		tr, changes := sample(t)
		killed(t, tr, changes, 5)
		if err := change(tr.Root()); err != nil {
			t.Fatal(err)
		}
		before := snapshot(t, tr.Root())
		err := tr.Back()
		if err == nil || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), filepath.Join(tr.Root(), ".journal")) {
			t.Errorf("%s: %v", what, err)
		}
		if !maps.Equal(before, snapshot(t, tr.Root())) {
			t.Errorf("%s: something was changed", what)
		}
		if err := tr.Write(changes, "", nil); err == nil || !strings.Contains(err.Error(), "cut off") {
			t.Errorf("%s: written over the journal of an earlier run: %v", what, err)
		}
		if !maps.Equal(before, snapshot(t, tr.Root())) {
			t.Errorf("%s: the journal was changed", what)
		}
	}
}

// Somebody who put the tree back by hand, in full or in part, is not held up.
func TestBackAfterReset(t *testing.T) {
	tr, changes := sample(t)
	before := snapshot(t, tr.Root())
	killed(t, tr, changes, 5)
	put(t, tr, "a.go", "old a.go")
	if err := os.RemoveAll(filepath.Join(tr.Root(), "new")); err != nil {
		t.Fatal(err)
	}
	if err := tr.Back(); err != nil {
		t.Fatal(err)
	}
	if after := snapshot(t, tr.Root()); !maps.Equal(before, after) {
		t.Errorf("before %v\nafter  %v", before, after)
	}
}

// Putting back may be cut off as well, by an error or a kill, and again.
func TestBackCutAtEveryStep(t *testing.T) {
	defer func() { stopBack = nil }()
	for _, kill := range []bool{false, true} {
		for n := range 5 {
			tr, changes := sample(t)
			before := snapshot(t, tr.Root())
			killed(t, tr, changes, 5)
			step := 0
			stopBack = func(string) error {
				switch step++; {
				case step <= n:
					return nil
				case kill:
					panic("killed")
				}
				return errors.New("disk full")
			}
			err := survived(tr.Back)
			if stopBack = nil; err == nil {
				t.Fatalf("cut at %d: no error", n)
			}
			if pending, _, err := tr.Pending(); !pending || err != nil {
				t.Fatalf("cut at %d: the journal is gone, %v", n, err)
			}
			if err := tr.Back(); err != nil {
				t.Fatal(err)
			}
			if after := snapshot(t, tr.Root()); !maps.Equal(before, after) {
				t.Errorf("cut at %d (kill %v): tree differs\nbefore %v\nafter  %v", n, kill, before, after)
			}
		}
	}
}

// On a full disk nothing can be copied: new files go first, what was not replaced is
// not written, and what was gets its saved copy by a rename.
func TestBackNeedsNoRoom(t *testing.T) {
	tr, changes := sample(t)
	untouched, err := os.Stat(filepath.Join(tr.Root(), "rpc/b.go"))
	if err != nil {
		t.Fatal(err)
	}
	changes = []Change{changes[0], changes[3], changes[4], changes[1]}
	killed(t, tr, changes, 3)
	saved, err := os.Stat(filepath.Join(tr.Root(), ".journal", "0"))
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	stopBack = func(path string) error { order = append(order, path); return nil }
	defer func() { stopBack = nil }()
	if err := tr.Back(); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(order, " "); got != "new/deep/d.go new/e.go a.go" {
		t.Errorf("put back in the order %s", got)
	}
	if st, err := os.Stat(filepath.Join(tr.Root(), "rpc/b.go")); err != nil || !os.SameFile(st, untouched) {
		t.Error("a file that was never replaced was written")
	}
	if st, err := os.Stat(filepath.Join(tr.Root(), "a.go")); err != nil || !os.SameFile(st, saved) || st.Mode().Perm() != 0o644 {
		t.Error("a.go is not its saved copy")
	}
}

// Where the journal lies on another file system, the copy is copied.
func TestBackFromAnotherFileSystem(t *testing.T) {
	tr, changes := sample(t)
	before := snapshot(t, tr.Root())
	killed(t, tr, changes, 5)
	rename = func(string, string) error { return errors.New("invalid cross-device link") }
	defer func() { rename = os.Rename }()
	if err := tr.Back(); err != nil {
		t.Fatal(err)
	}
	if after := snapshot(t, tr.Root()); !maps.Equal(before, after) {
		t.Errorf("before %v\nafter  %v", before, after)
	}
}

// The error says that the tree is as it was only where it is.
func TestWriteTellsWhatItLeft(t *testing.T) {
	for _, back := range []bool{true, false} {
		tr, changes := sample(t)
		if err := os.MkdirAll(filepath.Join(tr.Root(), "rpc/b.go"+tmpSuffix, "x"), 0o755); err != nil {
			t.Fatal(err)
		}
		before := snapshot(t, tr.Root())
		if !back {
			stopBack = func(string) error { return errors.New("read-only file system") }
		}
		err := tr.Write(changes, "", nil)
		stopBack = nil
		if err == nil || strings.Contains(err.Error(), "was put back as it was") != back || strings.Contains(err.Error(), "read-only") == back {
			t.Errorf("put back %v: %v", back, err)
		}
		if !back {
			err = tr.Back()
		} else {
			err = nil
		}
		if after := snapshot(t, tr.Root()); err != nil || !maps.Equal(before, after) {
			t.Errorf("put back %v: %v\nbefore %v\nafter  %v", back, err, before, after)
		}
	}
}

// A file that was saved in an editor since it was looked at is not written over, and
// the others are put back around it.
func TestWriteOverNothingNew(t *testing.T) {
	for n := range 4 {
		tr, changes := sample(t)
		changes[0].Seen, changes[0].Was = true, []byte("old a.go")
		changes[3].Seen = true
		name := []string{"a.go", "new/deep/d.go", "rpc/b.go", "new/e.go"}[n]
		edit := func(string) error {
			stop = nil
			os.MkdirAll(filepath.Dir(filepath.Join(tr.Root(), name)), 0o755)
			put(t, tr, name, "my work")
			return nil
		}
		if n < 2 { // before the first file is saved
			edit("")
		} else { // between saving and replacing
			stop = edit
		}
		err := tr.Write(changes, "", nil)
		stop = nil
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		got := snapshot(t, tr.Root())
		want := map[string]string{"a.go": "old a.go", "rpc/b.go": "old rpc/b.go", "rpc/old/c.go": "old rpc/old/c.go"}
		want[name] = "my work"
		for path, text := range want {
			if !strings.HasSuffix(got[path], text) {
				t.Errorf("%s: %s is %q, want %q", name, path, got[path], text)
			}
		}
		if _, ok := got[".journal"]; ok {
			t.Errorf("%s: the journal was left", name)
		}
	}
}

// A link where the new file is made leads nowhere.
func TestTemporaryFileNotThroughSymlink(t *testing.T) {
	tr, changes := sample(t)
	far := filepath.Join(t.TempDir(), "far")
	if err := os.WriteFile(far, []byte("theirs"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(far, filepath.Join(tr.Root(), "a.go"+tmpSuffix)); err != nil {
		t.Fatal(err)
	}
	if err := tr.Write(changes, "", nil); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(far); err != nil || string(data) != "theirs" {
		t.Errorf("%q, %v", data, err)
	}
}
