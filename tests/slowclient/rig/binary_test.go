// SPDX-License-Identifier: LGPL-3.0-or-later

package rig

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeBinary is a program that prints a help text for each command.
func fakeBinary(t *testing.T, help map[string]string) *Binary {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("no shell")
	}
	dir := t.TempDir()
	var b strings.Builder
	b.WriteString("#!/bin/sh\ncase \"$*\" in\n")
	for args, text := range help {
		file := filepath.Join(dir, strings.ReplaceAll(strings.Trim(args, "-"), " ", "_"))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		fmt.Fprintf(&b, "%q) cat %q ;;\n", args, file)
	}
	b.WriteString("*) exit 1 ;;\nesac\n")
	path := filepath.Join(dir, "node")
	require.NoError(t, os.WriteFile(path, []byte(b.String()), 0o755))
	bin, err := ProbeBinary(path)
	require.NoError(t, err)
	return bin
}

// list writes flags the way a command's help does.
func list(format string, flags ...string) string {
	var b strings.Builder
	for _, f := range flags {
		fmt.Fprintf(&b, format, f)
	}
	return b.String()
}

var borFlags = []string{
	"authrpc.addr", "authrpc.jwtsecret", "authrpc.port", "bor.withoutheimdall", "datadir", "dev", "dev.gaslimit", "dev.period",
	"disable-bor-wallet", "graphql", "graphql.vhosts", "grpc.addr", "http", "http.addr", "http.api", "http.port", "http.vhosts",
	"ipcpath", "maxpeers", "metrics", "metrics.prometheus-addr", "miner.gasprice", "nat", "nodiscover", "port", "pprof", "pprof.addr",
	"pprof.port", "rpc.batchlimit", "rpc.evmtimeout", "rpc.gascap", "rpc.returndatalimit", "txpool.accountslots", "txpool.globalslots",
	"txpool.pricelimit", "ws", "ws.addr", "ws.api", "ws.origins", "ws.port",
}

// A node of bor's is started by its server command, with what its help knows and
// nothing else, and without any of its fixed ports.
func TestFlagsOfAServerCommand(t *testing.T) {
	b := fakeBinary(t, map[string]string{
		"--help":        "Usage: bor [--version] [--help] <command> [<args>]\n\nAvailable commands are:\n    account\n    server\n",
		"server --help": "Usage: bor [options]\n\nOptions:\n\n" + list("  -%s\n    about it, see --txpool.journal (default: 1)\n\n", borFlags...),
		"version":       "2.3.0-beta4\n",
	})
	require.True(t, b.Server())
	require.False(t, b.Guarded())
	require.False(t, b.Has("txpool.journal"), "a flag that only a description names")
	n := &Node{Binary: b, IPC: "ipc", Page: "127.0.0.1:5", dir: "dir"}
	args, dropped := b.filter(nodeFlags(n, NodeConfig{Period: 1, Flags: []string{"rpc.body.budget=1", "rpc.evmtimeout=4s"}}, "127.0.0.1", []int{1, 2, 3, 4, 5, 6}, "secret"))
	for _, want := range []string{
		"--dev", "--dev.period=1", "--http.port=1", "--ws.port=2", "--authrpc.port=3", "--pprof.port=4",
		"--metrics.prometheus-addr=127.0.0.1:5", "--grpc.addr=127.0.0.1:6", "--bor.withoutheimdall",
		"--rpc.batchlimit=1000", "--miner.gasprice=1", "--txpool.pricelimit=1", "--rpc.evmtimeout=4s",
	} {
		require.Contains(t, args, want)
	}
	require.Contains(t, dropped, "rpc.body.budget=1")
	require.Contains(t, dropped, "gpo.ignoreprice=1")
}

// geth's own flags stand on the command itself, and nothing of bor's is asked for.
func TestFlagsOfAPlainCommand(t *testing.T) {
	b := fakeBinary(t, map[string]string{
		"--help":  "   API\n" + list("    --%s value (default: 1)\n", append(borFlags, "gpo.ignoreprice", "rpc.guard", "rpc.client.trusted-proxies")...),
		"version": "Geth\nVersion: 1.17.10-stable\n",
	})
	require.False(t, b.Server())
	require.True(t, b.Guarded())
	require.Equal(t, "1.17.10-stable", b.Release)
	n := &Node{Binary: b, dir: "dir"}
	args, _ := b.filter(nodeFlags(n, NodeConfig{Period: 1, IPv6: true}, "::1", []int{1, 2, 3, 4, 5, 6}, "secret"))
	require.NotContains(t, args, "--miner.gasprice=1")
	require.Contains(t, args, "--http.addr=::1")
	require.Contains(t, args, "--rpc.client.trusted-proxies=::1/128")
	_, err := ProbeBinary(filepath.Join(t.TempDir(), "nowhere"))
	require.Error(t, err)
}

func TestAttackersAreClientsOfTheirOwn(t *testing.T) {
	for _, n := range []*Node{{}, {ipv6: true}} {
		seen := make(map[string]bool)
		for i := range 500 {
			d := n.Attacker(i)
			seen[d.From+" "+d.Forward] = true
		}
		if runtime.GOOS == "linux" || n.ipv6 {
			require.Len(t, seen, 500)
		}
	}
}
