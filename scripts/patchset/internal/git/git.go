// SPDX-License-Identifier: LGPL-3.0-or-later

// Package git runs git as a subprocess so that the same input gives the same
// commits on every machine.
package git

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Identity and date of every commit that the tool makes. A fixed date makes the
// ids of the commits in build/fork depend on contents alone, which is how the
// tool sees whether anything changed.
const (
	Name  = "rpcguard"
	Email = "rpcguard@localhost"
	Date  = "2026-01-01T00:00:00+00:00"
	// MailDate is Date as a mail header has it.
	MailDate = "Thu, 1 Jan 2026 00:00:00 +0000"
)

// Repo is a work tree.
type Repo struct {
	Dir string
	// Foreign is set for somebody else's checkout: their configuration is read
	// (who commits, which directories are safe), though no hook, signing or
	// monitor of it runs. Our own repositories read no configuration but theirs.
	Foreign bool
	// Env is added to every command, such as GIT_INDEX_FILE=...
	Env []string
}

// With returns the same repository with more environment.
func (r *Repo) With(env ...string) *Repo {
	c := *r
	c.Env = append(append([]string(nil), r.Env...), env...)
	return &c
}

// Run runs git and returns its standard output without the last newline.
func (r *Repo) Run(args ...string) (string, error) { return r.Input(nil, args...) }

// Input is Run with something on standard input.
func (r *Repo) Input(stdin []byte, args ...string) (string, error) {
	out, err := r.run(stdin, args)
	return strings.TrimSuffix(out, "\n"), err
}

// Raw is Run with the output byte for byte.
func (r *Repo) Raw(args ...string) (string, error) { return r.run(nil, args) }

func (r *Repo) run(stdin []byte, args []string) (string, error) {
	full := []string{"-c", "core.hooksPath=/dev/null", "-c", "commit.gpgSign=false", "-c", "core.fsmonitor=false",
		"-c", "core.quotePath=false", "-c", "advice.detachedHead=false", "-c", "gc.auto=0"}
	if !r.Foreign {
		full = append(full, "-c", "core.autocrlf=false", "-c", "core.symlinks=true", "-c", "core.fsync=none")
	}
	cmd := exec.Command("git", append(full, args...)...)
	cmd.Dir = r.Dir
	cmd.Stdin = bytes.NewReader(stdin)
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "GIT_") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.Env = append(cmd.Env, "LC_ALL=C", "TZ=UTC", "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0",
		"GIT_AUTHOR_NAME="+Name, "GIT_AUTHOR_EMAIL="+Email, "GIT_AUTHOR_DATE="+Date)
	if !r.Foreign {
		cmd.Env = append(cmd.Env, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull,
			"GIT_COMMITTER_NAME="+Name, "GIT_COMMITTER_EMAIL="+Email, "GIT_COMMITTER_DATE="+Date)
	}
	cmd.Env = append(cmd.Env, r.Env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		msg := strings.TrimSpace(errs.String())
		if msg == "" {
			msg = err.Error()
		}
		return "", fmt.Errorf("git %s in %s: %s", args[0], r.Dir, msg)
	}
	return out.String(), nil
}

// Lines is Run with the output cut at NUL bytes.
func (r *Repo) Lines(args ...string) ([]string, error) {
	out, err := r.Run(args...)
	if err != nil || out == "" {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(out, "\x00"), "\x00"), nil
}

// Committer sets the committer of a foreign repository to our identity where
// its owner has configured none, so that a commit can be made at all.
func (r *Repo) Committer() {
	if !r.Foreign {
		return
	}
	if mail, err := r.Run("config", "user.email"); err == nil && mail != "" {
		return
	}
	r.Env = append(r.Env, "GIT_COMMITTER_NAME="+Name, "GIT_COMMITTER_EMAIL="+Email)
}
