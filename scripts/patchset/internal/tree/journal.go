// SPDX-License-Identifier: LGPL-3.0-or-later

package tree

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"syscall"
)

// Change is one file of a change: its new contents, or its removal.
type Change struct {
	Path   string
	Data   []byte
	Remove bool
}

// tmpSuffix names a file being written; the journal finds them by it.
const tmpSuffix = ".rpcguard-tmp"

// record is what the journal knows: enough to put everything back.
//
// Order, so that a cut at any moment leaves either the old tree or a journal
// that leads back to it: the old contents are saved, then the list is renamed
// into place, then files are replaced one by one, each by a rename. Removing the
// list commits the change.
type record struct {
	PID   int
	Note  string // what the caller needs to finish instead of going back
	Files []entry
	Dirs  []string // directories made, deepest last
}

type entry struct {
	Path    string
	Existed bool
	Mode    fs.FileMode
}

// Pending tells whether a change was cut off here, with its note. An error says
// that one is under way in a live process.
func (t *Tree) Pending() (bool, string, error) {
	rec, err := t.load()
	if rec == nil || err != nil {
		return false, "", err
	}
	if p, err := os.FindProcess(rec.PID); err == nil && rec.PID != os.Getpid() && p.Signal(syscall.Signal(0)) == nil {
		return false, "", fmt.Errorf("%s is being changed by process %d; wait for it to end", t.root, rec.PID)
	}
	return true, rec.Note, nil
}

func (t *Tree) load() (*record, error) {
	data, err := os.ReadFile(filepath.Join(t.root, t.journal, "list"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	rec := new(record)
	if err := json.Unmarshal(data, rec); err != nil {
		return nil, fmt.Errorf("journal %s: %w", filepath.Join(t.root, t.journal), err)
	}
	return rec, nil
}

// Write carries out all changes, or none: an error leaves the tree as it was.
// Afterwards the journal still stands; Done removes it, Back undoes the change.
// The note comes back from Pending should the process die in between. A signal from
// interrupted, which may be nil, undoes the change like an error.
func (t *Tree) Write(changes []Change, note string, interrupted <-chan os.Signal) error {
	dir := filepath.Join(t.root, t.journal)
	if err := os.RemoveAll(dir); err != nil { // a journal without a list: nothing was changed
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	rec := record{PID: os.Getpid(), Note: note}
	made := make(map[string]bool)
	for i, c := range changes {
		at, err := t.real(c.Path)
		if err != nil {
			return errors.Join(err, os.RemoveAll(dir))
		}
		e := entry{Path: c.Path, Mode: 0o644}
		if st, err := os.Lstat(at); err == nil {
			e.Existed, e.Mode = true, st.Mode().Perm()
			old, err := os.ReadFile(at)
			if err == nil {
				err = writeFile(filepath.Join(dir, strconv.Itoa(i)), old, 0o600)
			}
			if err != nil {
				return errors.Join(err, os.RemoveAll(dir))
			}
		}
		rec.Files = append(rec.Files, e)
		var up []string
		for d := path.Dir(c.Path); d != "." && !made[d]; d = path.Dir(d) {
			if _, err := os.Lstat(filepath.Join(t.root, filepath.FromSlash(d))); err == nil {
				break
			}
			made[d] = true
			up = append([]string{d}, up...)
		}
		rec.Dirs = append(rec.Dirs, up...)
	}
	list, err := json.Marshal(rec)
	if err == nil {
		err = writeFile(filepath.Join(dir, "list.new"), list, 0o600)
	}
	if err == nil {
		err = os.Rename(filepath.Join(dir, "list.new"), filepath.Join(dir, "list"))
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	for i, c := range changes {
		err := t.put(c, rec.Files[i].Mode)
		if err == nil {
			select {
			case s := <-interrupted:
				err = fmt.Errorf("stopped by a signal (%v)", s)
			default:
			}
		}
		if err != nil {
			return errors.Join(err, t.Back())
		}
	}
	return nil
}

// put replaces or removes one file. It is a variable-free step so that a test
// can stop between any two of them.
func (t *Tree) put(c Change, mode fs.FileMode) error {
	if stop != nil {
		if err := stop(c.Path); err != nil {
			return err
		}
	}
	at := filepath.Join(t.root, filepath.FromSlash(c.Path))
	if c.Remove {
		if err := os.Remove(at); err != nil {
			return err
		}
		// A directory that only held what is removed goes with it.
		for d := filepath.Dir(at); d != t.root && os.Remove(d) == nil; d = filepath.Dir(d) {
		}
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	if err := writeFile(at+tmpSuffix, c.Data, mode); err != nil {
		return err
	}
	return os.Rename(at+tmpSuffix, at)
}

// stop, when a test sets it, is asked before each step.
var stop func(path string) error

// Done commits what Write did.
func (t *Tree) Done() error {
	dir := filepath.Join(t.root, t.journal)
	if err := os.Remove(filepath.Join(dir, "list")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.RemoveAll(dir)
}

// Back undoes what Write did, wherever it was cut off.
func (t *Tree) Back() error {
	rec, err := t.load()
	if rec == nil || err != nil {
		return err
	}
	var errs []error
	for i, e := range rec.Files {
		at, err := t.real(e.Path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		os.Remove(at + tmpSuffix)
		if !e.Existed {
			if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
			continue
		}
		old, err := os.ReadFile(filepath.Join(t.root, t.journal, strconv.Itoa(i)))
		if err == nil {
			if err = os.MkdirAll(filepath.Dir(at), 0o755); err == nil {
				err = writeFile(at+tmpSuffix, old, e.Mode)
			}
		}
		if err == nil {
			err = os.Rename(at+tmpSuffix, at)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	for i := len(rec.Dirs) - 1; i >= 0; i-- {
		os.Remove(filepath.Join(t.root, filepath.FromSlash(rec.Dirs[i]))) // stays if somebody put a file there
	}
	if len(errs) > 0 {
		return fmt.Errorf("putting %s back: %w (the old contents are kept in %s)", t.root, errors.Join(errs...), filepath.Join(t.root, t.journal))
	}
	return t.Done()
}

// writeFile writes and syncs: after a power cut a renamed file has its contents.
func writeFile(name string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		f.Close()
		return err
	}
	if err := f.Sync(); err != nil {
		f.Close()
		return err
	}
	if err := f.Chmod(mode); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
