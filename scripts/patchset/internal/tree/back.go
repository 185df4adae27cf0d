// SPDX-License-Identifier: LGPL-3.0-or-later

package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Back undoes what Write did, wherever it was cut off. Each file has to be as it was or
// as it was to be written: anything else is what somebody did since, and then nothing
// is put back.
func (t *Tree) Back() error {
	rec, err := t.load()
	if rec == nil || err != nil {
		return err
	}
	return t.back(rec, len(rec.Files))
}

// back undoes the first n changes; the others were not begun, so that whatever stands
// there stays.
func (t *Tree) back(rec *record, n int) error {
	var fresh, replaced []int
	var theirs []string
	for i, e := range rec.Files[:n] {
		now, err := t.sumOf(e.Path)
		switch {
		case err != nil:
			theirs = append(theirs, err.Error())
		case now == e.Was:
		case now != e.Will && e.Was == "":
			theirs = append(theirs, e.Path+" (was not there before)")
		case now != e.Will:
			theirs = append(theirs, fmt.Sprintf("%s (before: %s)", e.Path, filepath.Join(t.Journal(), strconv.Itoa(i))))
		case e.Was == "":
			fresh = append(fresh, i)
		default:
			replaced = append(replaced, i)
		}
	}
	if len(theirs) > 0 {
		return t.refuse(theirs)
	}
	for _, e := range rec.Files {
		if at, err := t.real(e.Path); err == nil {
			if st, err := os.Lstat(at + tmpSuffix); err == nil && st.Mode().IsRegular() {
				os.Remove(at + tmpSuffix)
			}
		}
	}
	// On a full disk the new files make the room that the old ones may need.
	var errs []error
	for _, i := range append(fresh, replaced...) {
		if err := t.undo(i, rec.Files[i]); err != nil {
			errs = append(errs, err)
		}
	}
	for i := len(rec.Dirs) - 1; i >= 0; i-- {
		os.Remove(filepath.Join(t.root, filepath.FromSlash(rec.Dirs[i]))) // stays if somebody put a file there
	}
	if len(errs) > 0 {
		return fmt.Errorf("putting %s back: %w\nit is NOT as it was; the old contents are kept in %s, and the next run tries again", t.root, errors.Join(errs...), t.Journal())
	}
	return t.Done()
}

// refuse names the files that somebody changed, and both ways on.
func (t *Tree) refuse(theirs []string) error {
	const most = 10
	more := ""
	if len(theirs) > most {
		more = fmt.Sprintf("\n  and %d more", len(theirs)-most)
		theirs = theirs[:most]
	}
	return fmt.Errorf("a change of %s was cut off, and these files are neither as they were before it nor as it wrote them:\n  %s%s\nnothing was put back. Keep your changes elsewhere, put these files as they were before and run it again; or, if the tree is as you want it, remove %s", t.root, strings.Join(theirs, "\n  "), more, t.Journal())
}

// stopBack, when a test sets it, is asked before each file that is put back; rename
// fails in a test as between two file systems.
var (
	stopBack func(path string) error
	rename   = os.Rename
)

// undo removes a new file, or puts the saved copy of an old one back: by a rename,
// which takes no room, where both lie on one file system.
func (t *Tree) undo(i int, e entry) error {
	if stopBack != nil {
		if err := stopBack(e.Path); err != nil {
			return err
		}
	}
	at, err := t.real(e.Path)
	if err != nil {
		return err
	}
	if e.Was == "" {
		if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	saved := filepath.Join(t.Journal(), strconv.Itoa(i))
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	if err := os.Chmod(saved, e.Mode); err != nil {
		return err
	}
	if rename(saved, at) == nil {
		return nil
	}
	old, err := os.ReadFile(saved)
	if err != nil {
		return err
	}
	if err := writeFile(at+tmpSuffix, old, e.Mode); err != nil {
		return err
	}
	return os.Rename(at+tmpSuffix, at)
}
