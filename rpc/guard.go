// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
)

// Guard bounds what the clients of a node's RPC servers can make the node do and
// hold: calls executing and waiting, bytes of requests being read, bytes of
// replies not yet taken, events waiting for slow subscribers, connections.
//
// # Model
//
// A node has one guard; its servers share it, because they share the processors
// and the memory that the guard protects. Each server sees it through a view that
// says how far its clients are trusted:
//
//   - untrusted (public HTTP and WebSocket): every limit applies;
//   - trusted (a server with a JWT secret, the IPC server): calls are counted and
//     delivery is bounded, but nothing is refused, queued, timed or capped;
//   - in-process: as trusted, and delivery blocks as upstream's does.
//
// # Invariants
//
//   - A nil guard is upstream's behaviour, exactly. Every method accepts it.
//   - A handler finds the guard through its connection (streams) or its context
//     (HTTP), never through the registry: the same handler type serves clients,
//     and a client-side handler has no guard.
//   - The node's own calls (console, in-process clients, GraphQL resolvers) never
//     need a second permit while they hold one.
//
// # Non-goals
//
// The guard authenticates nobody, knows no quotas over time, and does not bound
// what a method computes once it runs, only how many run and what they hold.
type Guard struct {
	*guardCore
	mode guardMode
}

// guardMode says how far the clients of a server are trusted.
type guardMode uint8

const (
	modeUntrusted guardMode = iota
	modeTrusted
	modeInProc
)

// guardCore is what all views of one node's guard share.
type guardCore struct {
	cfg GuardConfig // resolved and valid
	env GuardEnv

	clock      mclock.Clock
	keys       *clientKeys
	admission  *guardAdmission
	replies    *guardReplies
	subs       subBooks
	flusher    *flusher // writes notifications
	filters    *filterBook
	kept       *byteBudget // what subscriptions and polling filters keep
	body       *byteBudget // bytes of requests
	bodyBooks  bodyBooks
	bodyTimer  bodyTimer
	parsing    chan struct{} // a slot for each large body being parsed
	conns      *connTable
	closing    closePace
	streams    serverStreams
	workers    callWorkers   // run the messages of streams
	connResets atomic.Uint64 // connections ended for resetting streams
}

// guardStandIn takes the place of a nil guard. Only _test.go files set it: it
// lets upstream's own tests, which know nothing of guards, run with one.
var guardStandIn *Guard

// NewGuard returns the guard that cfg describes, or nil if cfg is not enabled.
// The error of a value out of range names its flag and the allowed range.
func NewGuard(cfg GuardConfig, env GuardEnv) (*Guard, error) {
	if !cfg.Enabled {
		return nil, nil
	}
	cfg = cfg.resolve(env)
	if err := cfg.validate(env); err != nil {
		return nil, err
	}
	core := &guardCore{cfg: cfg, env: env, clock: mclock.System{}, closing: closePace{clock: mclock.System{}}}
	var err error
	if core.admission, err = newGuardAdmission(&cfg, core.clock); err != nil {
		return nil, err
	}
	if core.keys, err = newClientKeys(cfg.Client.TrustedProxies, cfg.Client.Local, core.clock); err != nil {
		return nil, fmt.Errorf("--rpc.client.trusted-proxies: %w", err)
	}
	if core.body, err = cfg.newBodyBudget(env, core.clock); err != nil {
		return nil, err
	}
	if core.replies, err = newGuardReplies(&cfg, core.clock); err != nil {
		return nil, fmt.Errorf("--rpc.reply: %w", err)
	}
	if core.kept, err = cfg.newKeptBudget(); err != nil {
		return nil, err
	}
	if core.flusher, err = newFlusher(max(1, env.Procs)); err != nil {
		return nil, err
	}
	core.filters = newFilterBook(cfg.Filter.Max, cfg.Filter.MaxPerClient, core.clock)
	core.conns = newConnTable(cfg.Conn.Max, cfg.Conn.MaxPerClient, core.clock)
	core.conns.dry = cfg.DryRun
	core.bodyTimer.clock = core.clock
	core.parsing = make(chan struct{}, max(1, env.Procs-1))
	return &Guard{guardCore: core}, nil
}

// bodyPause is how long a body may stop before others get its bytes, if those do
// not fit.
const bodyPause = 250 * time.Millisecond

// newBodyBudget returns the budget of request bytes. A quarter of it is kept for
// small bodies, but never so much that the largest one does not fit.
func (c GuardConfig) newBodyBudget(env GuardEnv, clock mclock.Clock) (*byteBudget, error) {
	reserve := min(c.Body.Budget/4, c.Body.Budget-c.bodyFloor(env))
	b, err := newByteBudget(c.Body.Budget, reserve, budgetStep)
	if err == nil {
		b.dry = c.DryRun
		b.pause, b.clock = bodyPause, clock
	}
	return b, err
}

// Trusted returns the view for a server whose clients are trusted.
func (g *Guard) Trusted() *Guard { return g.view(modeTrusted) }

// InProc returns the view for the server inside the process.
func (g *Guard) InProc() *Guard { return g.view(modeInProc) }

// Config returns the limits in force at start, derived ones filled in.
func (g *Guard) Config() GuardConfig {
	if g == nil {
		return GuardConfig{}
	}
	return g.cfg
}

// SetGuard gives the server its guard. It must be called before the server
// serves its first connection; nil leaves it as upstream's.
func (s *Server) SetGuard(g *Guard) {
	s.services.guard = g
	if g.untrusted() {
		s.setReadLimit(g.cfg.Body.WSLimit)
	}
}

func (g *Guard) view(mode guardMode) *Guard {
	if g == nil {
		return nil
	}
	return &Guard{guardCore: g.guardCore, mode: mode}
}

// orStandIn is how every hook reads its guard.
func (g *Guard) orStandIn() *Guard {
	if g == nil {
		return guardStandIn
	}
	return g
}

// untrusted reports whether the limits apply to the clients of this view.
func (g *Guard) untrusted() bool { return g != nil && g.mode == modeUntrusted }

// enforces reports whether this view does more than count: its clients are not trusted,
// and it is no dry run.
func (g *Guard) enforces() bool { return g.untrusted() && !g.cfg.DryRun }
