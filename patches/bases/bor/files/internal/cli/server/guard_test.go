// SPDX-License-Identifier: LGPL-3.0-or-later

package server

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/node"
	"github.com/ethereum/go-ethereum/rpc"
	"github.com/stretchr/testify/require"
)

// built is the node's configuration that a command line leads to.
func built(t *testing.T, args ...string) *node.Config {
	t.Helper()
	var c Command
	require.NoError(t, c.extractFlags(append(args, "--datadir", t.TempDir())))
	cfg, err := c.config.buildNode()
	require.NoError(t, err)
	return cfg
}

func TestHookReachedBuildNode(t *testing.T) {
	cfg := built(t, "--http.ep-size", "30", "--ws.ep-size", "20")
	want := rpc.DefaultGuardConfig
	want.Admission.Concurrency = 50
	require.Equal(t, want, cfg.RPCGuard)
	require.Zero(t, cfg.HTTPJsonRPCExecutionPoolSize+cfg.WSJsonRPCExecutionPoolSize, "a second limiter is on")
	require.NotZero(t, cfg.BatchRequestLimit, "batches over WebSocket have no limit")
	require.NotZero(t, cfg.BatchResponseMaxSize, "batches over WebSocket have no limit")
}

func TestHookReachedFlags(t *testing.T) {
	cfg := built(t, "--rpc.admission.concurrency=7", "--rpc.body.idle", "3s", "--rpc.body.ws-limit=1000",
		"--rpc.heavy.jstracers=false", "--rpc.client.local", "--rpc.client.trusted-proxies", "10.0.0.0/8, 192.0.2.0/24")
	want := rpc.DefaultGuardConfig
	want.Admission.Concurrency = 7
	want.Body.Idle, want.Body.WSLimit = 3*time.Second, 1000
	want.Heavy.JSTracers, want.Client.Local = false, true
	want.Client.TrustedProxies = []string{"10.0.0.0/8", "192.0.2.0/24"}
	require.Equal(t, want, cfg.RPCGuard)

	var c Command
	require.Error(t, c.Flags(nil).Parse([]string{"--rpc.admission.queue", "many"}))
}

// What a file leaves out keeps its default, and a flag wins over the file.
func TestHookReachedConfigFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.toml")
	text := "[jsonrpc.guard.admission]\nqueue = 99\nwait = \"2s\"\n[jsonrpc.guard.sub]\noverflow = \"unsubscribe\"\n[jsonrpc.guard]\ndryrun = false\n"
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	cfg := built(t, "--config", file, "--rpc.admission.wait", "1s")
	want := rpc.DefaultGuardConfig
	want.Admission.Concurrency = 80
	want.Admission.Queue, want.Admission.Wait, want.Sub.Overflow = 99, time.Second, "unsubscribe"
	require.Equal(t, want, cfg.RPCGuard)
}

// With the guard off, or only counting, bor's own limiter stays.
func TestGuardOffKeepsThePools(t *testing.T) {
	for _, arg := range []string{"--rpc.guard=false", "--rpc.guard.dryrun"} {
		cfg := built(t, arg)
		require.EqualValues(t, 40, cfg.HTTPJsonRPCExecutionPoolSize, arg)
		require.EqualValues(t, 40, cfg.WSJsonRPCExecutionPoolSize, arg)
		require.Zero(t, cfg.BatchRequestLimit, arg)
	}
}

func TestGuardNodeKeepsWhatIsSet(t *testing.T) {
	cfg := &node.Config{BatchRequestLimit: 7, HTTPJsonRPCExecutionPoolSize: 40}
	guardNode(cfg, nil)
	require.Equal(t, rpc.DefaultGuardConfig, cfg.RPCGuard, "a pool without a limit leaves the default")
	require.Equal(t, 7, cfg.BatchRequestLimit)
}
