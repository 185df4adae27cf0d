// SPDX-License-Identifier: LGPL-3.0-or-later

package tree

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// snapshot reads a whole directory: contents, modes, links.
func snapshot(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, name)
		st, err := e.Info()
		if err != nil {
			return err
		}
		text := ""
		switch {
		case st.Mode()&fs.ModeSymlink != 0:
			text, err = os.Readlink(name)
		case st.Mode().IsRegular():
			var data []byte
			data, err = os.ReadFile(name)
			text = string(data)
		}
		out[rel] = st.Mode().String() + " " + text
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func sample(t *testing.T) (*Tree, []Change) {
	t.Helper()
	dir := t.TempDir()
	for name, mode := range map[string]fs.FileMode{"a.go": 0o644, "rpc/b.go": 0o755, "rpc/old/c.go": 0o644} {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte("old "+name), mode); err != nil {
			t.Fatal(err)
		}
	}
	tr, err := Open(dir, ".journal")
	if err != nil {
		t.Fatal(err)
	}
	return tr, []Change{
		{Path: "a.go", Data: []byte("new a")},
		{Path: "rpc/b.go", Data: []byte("new b")},
		{Path: "rpc/old/c.go", Remove: true},
		{Path: "new/deep/d.go", Data: []byte("new d")},
		{Path: "new/e.go", Data: []byte("new e")},
	}
}

func TestWriteDone(t *testing.T) {
	tr, changes := sample(t)
	if err := tr.Write(changes, "", nil); err != nil {
		t.Fatal(err)
	}
	if err := tr.Done(); err != nil {
		t.Fatal(err)
	}
	got := snapshot(t, tr.Root())
	want := map[string]string{"a.go": "-rw-r--r-- new a", "rpc/b.go": "-rwxr-xr-x new b", "new/deep/d.go": "-rw-r--r-- new d", "new/e.go": "-rw-r--r-- new e"}
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%s: %q, want %q", name, got[name], text)
		}
	}
	for _, gone := range []string{"rpc/old", "rpc/old/c.go", ".journal"} {
		if _, ok := got[gone]; ok {
			t.Errorf("%s is still there", gone)
		}
	}
}

// An error at any step, and a kill at any step, lead back to the same bytes.
func TestCutAtEveryStep(t *testing.T) {
	for _, kill := range []bool{false, true} {
		for n := range 5 {
			tr, changes := sample(t)
			before := snapshot(t, tr.Root())
			step := 0
			stop = func(string) error {
				if step++; step <= n {
					return nil
				}
				if kill {
					panic("killed")
				}
				return errors.New("disk full")
			}
			err := survived(func() error { return tr.Write(changes, "note", nil) })
			stop = nil
			if err == nil {
				t.Fatal("not cut")
			}
			if kill {
				pending, note, err := tr.Pending()
				if err != nil || !pending || note != "note" {
					t.Fatalf("kill at %d: pending %v, note %q, %v", n, pending, note, err)
				}
				if err := tr.Back(); err != nil {
					t.Fatal(err)
				}
			}
			if after := snapshot(t, tr.Root()); !maps.Equal(before, after) {
				t.Errorf("cut at %d (kill %v): tree differs\nbefore %v\nafter  %v", n, kill, before, after)
			}
		}
	}
}

// A kill while the old contents are being saved has changed nothing, and the
// rest of a journal does not stand in the way.
func TestJournalWithoutList(t *testing.T) {
	tr, changes := sample(t)
	os.MkdirAll(filepath.Join(tr.Root(), ".journal"), 0o755)
	os.WriteFile(filepath.Join(tr.Root(), ".journal", "0"), []byte("half"), 0o600)
	if pending, _, err := tr.Pending(); pending || err != nil {
		t.Fatal("taken for a change that was cut off", err)
	}
	if err := tr.Write(changes, "", nil); err != nil {
		t.Fatal(err)
	}
	if err := tr.Done(); err != nil {
		t.Fatal(err)
	}
}

func TestNeverThroughSymlinks(t *testing.T) {
	for _, link := range []string{"rpc", "rpc/b.go", "new"} {
		tr, changes := sample(t)
		outside := t.TempDir()
		os.WriteFile(filepath.Join(outside, "b.go"), []byte("theirs"), 0o644)
		at := filepath.Join(tr.Root(), link)
		os.RemoveAll(at)
		to := outside
		if strings.HasSuffix(link, ".go") {
			to = filepath.Join(outside, "b.go")
		}
		if err := os.Symlink(to, at); err != nil {
			t.Fatal(err)
		}
		before, far := snapshot(t, tr.Root()), snapshot(t, outside)
		if err := tr.Write(changes, "", nil); err == nil || !strings.Contains(err.Error(), "symlink") {
			t.Errorf("link at %s: %v", link, err)
		}
		if !maps.Equal(before, snapshot(t, tr.Root())) || !maps.Equal(far, snapshot(t, outside)) {
			t.Errorf("link at %s: something changed", link)
		}
		if _, err := tr.Read("rpc/b.go"); link != "new" && err == nil {
			t.Errorf("link at %s: read through it", link)
		}
	}
}

func TestOutOfTree(t *testing.T) {
	tr, _ := sample(t)
	for _, p := range []string{"../x", "/x", "rpc/../../x", ""} {
		if _, err := tr.Read(p); err == nil {
			t.Errorf("%q read", p)
		}
		if err := tr.Write([]Change{{Path: p, Data: []byte("x")}}, "", nil); err == nil {
			t.Errorf("%q written", p)
		}
	}
}

// An interrupt after the first file takes it back.
func TestInterrupted(t *testing.T) {
	tr, changes := sample(t)
	before := snapshot(t, tr.Root())
	interrupted := make(chan os.Signal, 1)
	interrupted <- os.Interrupt
	if err := tr.Write(changes, "", interrupted); err == nil || !strings.Contains(err.Error(), "interrupt") {
		t.Fatal(err)
	}
	if after := snapshot(t, tr.Root()); !maps.Equal(before, after) {
		t.Errorf("tree differs\nbefore %v\nafter  %v", before, after)
	}
}

// survived returns the error of do, or one if it was ended by a panic, as by a kill.
func survived(do func() error) (err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("killed")
		}
	}()
	return do()
}
