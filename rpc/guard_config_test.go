// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var testGuardEnv = GuardEnv{Procs: 4, Memory: 16 << 30, HTTPBodyLimit: 5 << 20, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second}

func TestGuardConfigZeroIsOff(t *testing.T) {
	g, err := NewGuard(GuardConfig{}, testGuardEnv)
	require.NoError(t, err)
	require.Nil(t, g)

	// Every view and accessor of a nil guard is nil or zero, never a panic.
	require.Nil(t, g.Trusted())
	require.Nil(t, g.InProc())
	require.False(t, g.untrusted())
	require.Equal(t, GuardConfig{}, g.Config())
}

func TestGuardConfigDerived(t *testing.T) {
	for _, tc := range []struct {
		procs       int
		memory      uint64
		cpu, heavy  int
		body, reply int64
	}{
		{1, 0, 1, 1, 64 << 20, 256 << 20},             // memory unknown: the lower bounds
		{2, 1 << 30, 1, 1, 64 << 20, 256 << 20},       // small machine: the lower bounds
		{4, 2 << 30, 3, 2, 128 << 20, 256 << 20},      // within the bounds
		{64, 256 << 30, 63, 32, 256 << 20, 512 << 20}, // large machine: the upper bounds
		{2, math.MaxUint64, 1, 1, 256 << 20, 512 << 20},
	} {
		env := testGuardEnv
		env.Procs, env.Memory = tc.procs, tc.memory
		g, err := NewGuard(DefaultGuardConfig, env)
		require.NoError(t, err)
		cfg := g.Config()
		require.Equal(t, tc.cpu, cfg.Admission.CPU)
		require.Equal(t, tc.heavy, cfg.Admission.Heavy)
		require.Equal(t, tc.body, cfg.Body.Budget)
		require.Equal(t, tc.reply, cfg.Reply.Budget)
		require.Equal(t, 30*time.Second, cfg.Admission.HeavyTimeout)
	}
}

// What the configuration says is what the parts work with. Their own tests make them
// with limits of their own, so that a field which leads nowhere would not show there.
func TestGuardConfigReachesItsPart(t *testing.T) {
	cfg := DefaultGuardConfig
	cfg.Admission.Concurrency, cfg.Admission.Queue, cfg.Admission.CPU, cfg.Admission.Heavy, cfg.Admission.Parked = 101, 102, 3, 2, 103
	cfg.Admission.Wait = 104 * time.Second
	cfg.Sub.Events, cfg.Sub.Bytes, cfg.Sub.ConnBytes, cfg.Sub.Max, cfg.Sub.Budget = 105, 106, 107, 108, 109<<20
	cfg.Sub.Overflow = "unsubscribe"
	cfg.Reply.Max = 110
	g, err := NewGuard(cfg, testGuardEnv)
	require.NoError(t, err)

	gate := g.admission.gate
	require.Equal(t, gateLimits{Concurrency: 101, Queue: 102, CPU: 3, Heavy: 2, Parked: 103}, gate.snapshot().limits)
	require.Equal(t, 104*time.Second, gate.wait)

	l := g.subLimits()
	l.books = nil
	require.Equal(t, subLimits{events: 105, bytes: 106, connBytes: 107, subs: 108, kept: 109 << 20, result: 110, notice: true}, l)
	l = g.Trusted().subLimits() // what it may have and keep is its own business
	l.books = nil
	require.Equal(t, subLimits{events: 105, bytes: 106, connBytes: 107, notice: true}, l)

	require.True(t, g.keys.keyFor("127.0.0.1:5", nil).perConn(), "a proxy on this host")
	cfg.Client.Local = true
	g, err = NewGuard(cfg, testGuardEnv)
	require.NoError(t, err)
	require.False(t, g.keys.keyFor("127.0.0.1:5", nil).perConn(), "a client like any other")
}

// A derived budget gives way to the largest message an operator allows; one that
// was set is refused instead.
func TestGuardConfigBudgetFloors(t *testing.T) {
	cfg := DefaultGuardConfig
	cfg.Body.WSLimit = 1 << 30
	cfg.Reply.Max = 2 << 30
	g, err := NewGuard(cfg, testGuardEnv)
	require.NoError(t, err)
	require.GreaterOrEqual(t, g.Config().Body.Budget, int64(1<<30))
	require.GreaterOrEqual(t, g.Config().Reply.Budget, int64(2<<30))

	cfg.Body.Budget = 100
	_, err = NewGuard(cfg, testGuardEnv)
	require.ErrorContains(t, err, "--rpc.body.budget (RPCGuard.Body.Budget): 100 is out of range, want at least")
	require.ErrorContains(t, err, ", or 0 for a limit that fits the machine")
	cfg = DefaultGuardConfig
	cfg.Conn.Max = 10 // below what one client may have by default
	_, err = NewGuard(cfg, testGuardEnv)
	require.ErrorContains(t, err, "--rpc.conn.max-per-client (RPCGuard.Conn.MaxPerClient): 1000 is out of range, want 1 to 10, which is --rpc.conn.max")
}

func TestGuardConfigRefusesNonsense(t *testing.T) {
	for flag, change := range map[string]func(*GuardConfig){
		"--rpc.admission.concurrency": func(c *GuardConfig) { c.Admission.Concurrency = 0 },
		"--rpc.admission.queue":       func(c *GuardConfig) { c.Admission.Queue = -1 },
		"--rpc.admission.cpu":         func(c *GuardConfig) { c.Admission.CPU = -1 },
		"--rpc.admission.heavy":       func(c *GuardConfig) { c.Admission.Heavy = -1 },
		"--rpc.admission.parked":      func(c *GuardConfig) { c.Admission.Parked = 0 },
		"--rpc.admission.inflight":    func(c *GuardConfig) { c.Admission.InFlight = 0 },
		"--rpc.admission.wait":        func(c *GuardConfig) { c.Admission.Wait = 0 },
		"--rpc.admission.status":      func(c *GuardConfig) { c.Admission.Status = 500 },
		"--rpc.admission.code":        func(c *GuardConfig) { c.Admission.Code = -32000 },
		"--rpc.body.idle":             func(c *GuardConfig) { c.Body.Idle = -time.Second },
		"--rpc.body.ws-limit":         func(c *GuardConfig) { c.Body.WSLimit = -1 },
		"--rpc.reply.max":             func(c *GuardConfig) { c.Reply.Max = -1 },
		"--rpc.reply.budget":          func(c *GuardConfig) { c.Reply.Budget = 1 },
		"--rpc.sub.overflow":          func(c *GuardConfig) { c.Sub.Overflow = "drop" },
		"--rpc.sub.events":            func(c *GuardConfig) { c.Sub.Events = 0 },
		"--rpc.sub.bytes":             func(c *GuardConfig) { c.Sub.Bytes = 0 },
		"--rpc.sub.conn-bytes":        func(c *GuardConfig) { c.Sub.ConnBytes = c.Sub.Bytes - 1 },
		"--rpc.sub.max":               func(c *GuardConfig) { c.Sub.Max = 0 },
		"--rpc.filter.max":            func(c *GuardConfig) { c.Filter.Max = 0 },
		"--rpc.filter.max-per-client": func(c *GuardConfig) { c.Filter.MaxPerClient = c.Filter.Max + 1 },
		"--rpc.filter.bytes":          func(c *GuardConfig) { c.Filter.Bytes = 0 },
		"--rpc.filter.total-bytes":    func(c *GuardConfig) { c.Filter.TotalBytes = 1 },
		"--rpc.conn.max":              func(c *GuardConfig) { c.Conn.Max = 0 },
		"--rpc.conn.max-per-client":   func(c *GuardConfig) { c.Conn.MaxPerClient = -5 },
		"--rpc.client.trusted-proxies": func(c *GuardConfig) {
			c.Client.TrustedProxies = []string{"10.0.0.1"}
		},
	} {
		cfg := DefaultGuardConfig
		change(&cfg)
		g, err := NewGuard(cfg, testGuardEnv)
		require.Nil(t, g, flag)
		require.Error(t, err, flag)
		require.True(t, strings.HasPrefix(err.Error(), flag+" (RPCGuard."), "%s: %v", flag, err)
		require.Contains(t, err.Error(), "want", flag)
	}
}

// "Unlimited" is a large number, and sums of such numbers are taken elsewhere:
// the configuration must accept them.
func TestGuardConfigAcceptsUnlimited(t *testing.T) {
	cfg := DefaultGuardConfig
	cfg.Admission.Concurrency, cfg.Admission.Queue = math.MaxInt, math.MaxInt
	cfg.Body.Budget, cfg.Reply.Budget = math.MaxInt64, math.MaxInt64
	cfg.Reply.Max = 0
	_, err := NewGuard(cfg, testGuardEnv)
	require.NoError(t, err)
}
