// SPDX-License-Identifier: LGPL-3.0-or-later

package rig

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// Binary is a node program and what its help says it understands.
type Binary struct {
	Path    string
	Version string   // what it is called in reports
	Release string   // as its version command prints it, or the file's name
	Command []string // subcommand that runs a node; bor: "server"
	flags   map[string]bool
}

var (
	flagRE    = regexp.MustCompile("(?m)^[\\s`-]*?--?([a-z][a-z0-9]*(?:[.-][a-zA-Z0-9]+)*)")
	versionRE = regexp.MustCompile(`(?m)^\s*Version:\s*(\S+)`)
)

// ProbeBinary runs path --help and path version, and learns from them which
// flags it accepts and how a node is started.
func ProbeBinary(path string) (*Binary, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	b := &Binary{Path: abs, Version: filepath.Base(path)}
	help, err := output(abs, "--help")
	if err != nil && len(help) == 0 {
		return nil, fmt.Errorf("%s --help: %w", path, err)
	}
	b.flags = parseFlags(help)
	if !b.flags["http"] {
		// bor hides a node's flags behind its server command.
		if help, _ = output(abs, "server", "--help"); parseFlags(help)["http"] {
			b.flags, b.Command = parseFlags(help), []string{"server"}
		} else {
			return nil, fmt.Errorf("%s: neither it nor its server command knows --http", path)
		}
	}
	if out, err := output(abs, "version"); err == nil {
		if m := versionRE.FindSubmatch(out); m != nil {
			b.Version = string(m[1])
		}
	}
	b.Release = b.Version
	return b, nil
}

// Has reports whether the binary knows the flag (without dashes).
func (b *Binary) Has(flag string) bool { return b.flags[flag] }

// Server reports whether a node is started by a server command, as bor's is.
func (b *Binary) Server() bool { return len(b.Command) > 0 && b.Command[0] == "server" }

// Guarded reports whether the binary carries rpcguard.
func (b *Binary) Guarded() bool { return b.Has("rpc.guard") }

// filter keeps of want ("flag" or "flag=value") what the binary knows.
func (b *Binary) filter(want []string) (args, dropped []string) {
	for _, w := range want {
		name, _, _ := strings.Cut(w, "=")
		if b.Has(name) {
			args = append(args, "--"+w)
		} else {
			dropped = append(dropped, w)
		}
	}
	return args, dropped
}

func parseFlags(help []byte) map[string]bool {
	flags := make(map[string]bool)
	for _, m := range flagRE.FindAllSubmatch(help, -1) {
		flags[string(m[1])] = true
	}
	return flags
}

func output(name string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.Bytes(), err
}
