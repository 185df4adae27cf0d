// SPDX-License-Identifier: LGPL-3.0-or-later

package tree

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
)

// Change is one file of a change: its new contents, or its removal.
type Change struct {
	Path   string
	Data   []byte
	Remove bool
	// With Seen nothing is written unless the file holds Was, or is missing where that is
	// nil: what the change was worked out from has to be what it is made to.
	Seen bool
	Was  []byte
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
	Note  string // what the caller needs to finish instead of going back
	Files []entry
	Dirs  []string // directories made, deepest last
}

// entry is a file of the journal, its saved copy named by its place in the list. The
// sums tell what stands there from what somebody put there since; "" is no file.
type entry struct {
	Path      string
	Was, Will string
	Mode      fs.FileMode
}

// Pending tells whether a change was cut off here, with its note. Only who holds the
// lock can tell it from one that is under way.
func (t *Tree) Pending() (bool, string, error) {
	rec, err := t.load()
	if rec == nil || err != nil {
		return false, "", err
	}
	return true, rec.Note, nil
}

// Journal is where the journal lies, for messages.
func (t *Tree) Journal() string { return filepath.Join(t.root, t.journal) }

func (t *Tree) load() (*record, error) {
	data, err := os.ReadFile(filepath.Join(t.Journal(), "list"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	rec := new(record)
	if err := json.Unmarshal(data, rec); err != nil {
		return nil, fmt.Errorf("journal %s: %w; remove it if the tree is as you want it", t.Journal(), err)
	}
	return rec, nil
}

// sum names contents.
func sum(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

// sumOf names what a path holds; "" is no file.
func (t *Tree) sumOf(path string) (string, error) {
	data, err := t.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return sum(data), nil
}

// Write carries out all changes, or none: an error leaves the tree as it was, or says
// that it does not. Afterwards the journal still stands; Done removes it, Back undoes
// the change. The note comes back from Pending should the process die in between. A
// signal from interrupted, which may be nil, undoes the change like an error.
//
// The caller holds the lock and has dealt with what was pending.
func (t *Tree) Write(changes []Change, note string, interrupted <-chan os.Signal) error {
	dir := t.Journal()
	if pending, _, err := t.Pending(); err != nil || pending {
		return errors.Join(err, fmt.Errorf("nothing was written: a change of %s was cut off, its journal is %s", t.root, dir))
	}
	if err := os.RemoveAll(dir); err != nil { // a journal without a list: nothing was changed
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	rec, err := t.save(changes, note)
	if err != nil {
		return errors.Join(fmt.Errorf("nothing was written: %w", err), os.RemoveAll(dir))
	}
	for i, c := range changes {
		err, done := t.put(c, rec.Files[i]), i
		if err == nil {
			done++
			select {
			case s := <-interrupted:
				err = fmt.Errorf("stopped by a signal (%v)", s)
			default:
			}
		}
		if err == nil {
			continue
		}
		if back := t.back(rec, done); back != nil {
			return errors.Join(err, back)
		}
		return fmt.Errorf("%w\n%s was put back as it was", err, t.root)
	}
	return nil
}

// save writes the journal; the tree is only read.
func (t *Tree) save(changes []Change, note string) (*record, error) {
	dir := t.Journal()
	rec := &record{Note: note}
	made := make(map[string]bool)
	for i, c := range changes {
		e := entry{Path: c.Path, Mode: 0o644}
		if !c.Remove {
			e.Will = sum(c.Data)
		}
		old, err := t.Read(c.Path)
		missing := errors.Is(err, fs.ErrNotExist)
		if err != nil && !missing {
			return nil, err
		}
		if c.Seen && (missing != (c.Was == nil) || !bytes.Equal(old, c.Was)) {
			return nil, fmt.Errorf("%s changed while this ran; run it again", c.Path)
		}
		if !missing {
			st, err := os.Lstat(filepath.Join(t.root, filepath.FromSlash(c.Path)))
			if err != nil {
				return nil, err
			}
			e.Was, e.Mode = sum(old), st.Mode().Perm()
			if err := writeFile(filepath.Join(dir, strconv.Itoa(i)), old, 0o600); err != nil {
				return nil, err
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
	return rec, err
}

// put replaces or removes one file. It is a variable-free step so that a test
// can stop between any two of them.
func (t *Tree) put(c Change, e entry) error {
	if stop != nil {
		if err := stop(c.Path); err != nil {
			return err
		}
	}
	at, err := t.real(c.Path)
	if err != nil {
		return err
	}
	if !c.Remove {
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := writeFile(at+tmpSuffix, c.Data, e.Mode); err != nil {
			return err
		}
	}
	// The last moment: what an editor saved since has no copy in the journal.
	if now, err := t.sumOf(c.Path); err != nil || now != e.Was {
		return errors.Join(err, fmt.Errorf("%s changed while this ran", c.Path))
	}
	if !c.Remove {
		return os.Rename(at+tmpSuffix, at)
	}
	if err := os.Remove(at); err != nil {
		return err
	}
	// A directory that only held what is removed goes with it.
	for d := filepath.Dir(at); d != t.root && os.Remove(d) == nil; d = filepath.Dir(d) {
	}
	return nil
}

// stop, when a test sets it, is asked before each step.
var stop func(path string) error

// Done commits what Write did.
func (t *Tree) Done() error {
	dir := t.Journal()
	if err := os.Remove(filepath.Join(dir, "list")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.RemoveAll(dir)
}

// writeFile writes and syncs: after a power cut a renamed file has its contents. The
// file is a new one: what a cut-off run left is removed, a link is not written through.
func writeFile(name string, data []byte, mode fs.FileMode) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_EXCL, mode)
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
