// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"rpcguard/tests/slowclient/rig"
)

// fanout is a workload of subscribers, one connection each, to one kind of event.
type fanout struct {
	name        string
	subscribers int
	params      func(*side) [][]any // of the subscriptions of each subscriber
	heads       bool                // new heads are among them, so samples begin between two blocks
	// trigger makes the events of one sample and returns how many notifications each
	// subscriber gets from them, the block's head aside. Nil: only that.
	trigger func(context.Context, *side) (perSubscriber int, err error)
}

func fanouts() (list []fanout) {
	heads := func(*side) [][]any { return [][]any{{"newHeads"}} }
	logs := func(s *side) [][]any { return [][]any{{"logs", map[string]any{"address": s.logger}}} }
	both := func(s *side) [][]any { return append(heads(s), logs(s)...) }
	txs := func(params ...any) func(*side) [][]any {
		return func(*side) [][]any { return [][]any{append([]any{"newPendingTransactions"}, params...)} }
	}
	add := func(kind string, n int, params func(*side) [][]any, trigger func(context.Context, *side) (int, error)) {
		heads := kind == "newHeads" || kind == "block100"
		list = append(list, fanout{fmt.Sprintf("fanout/%s/%d", kind, n), n, params, heads, trigger})
	}
	for _, n := range []int{100, 1000, 5000} {
		add("newHeads", n, heads, nil)
	}
	for _, n := range []int{100, 1000} {
		add("logs100", n, logs, blockOfLogs(100))
		add("block100", n, both, blockOfLogs(100))
	}
	add("logs2000", 100, logs, blockOfLogs(2000))
	for _, n := range []int{100, 1000} {
		add("txHashes", n, txs(), pendingTxs(50))
		add("txFull", n, txs(true), pendingTxs(50))
	}
	return list
}

func blockOfLogs(n uint64) func(context.Context, *side) (int, error) {
	return func(ctx context.Context, s *side) (int, error) {
		return int(n), s.account.Send(ctx, s.account.LogTx(s.logger, n))
	}
}

// pendingTxs sends n transactions, one after another, so that they are announced one by
// one as a network's are.
func pendingTxs(n int) func(context.Context, *side) (int, error) {
	return func(ctx context.Context, s *side) (int, error) {
		to := common.HexToAddress("0xdd")
		for range n {
			if err := s.account.Send(ctx, s.account.Sign(&to, nil, 21000)); err != nil {
				return 0, err
			}
		}
		return n, nil
	}
}

// audience is the subscribers of one node.
type audience struct {
	conns []*wsConn

	mu     sync.Mutex
	first  time.Time // of the present sample
	last   time.Time
	got    atomic.Int64
	failed atomic.Pointer[error]
	ended  atomic.Bool
}

func (w fanout) gather(s *side) (*audience, error) {
	a := new(audience)
	for i := range w.subscribers {
		// One address has 28000 ports, and one client has 1000 connections.
		c, err := dialWS(s.node.WS, fmt.Sprintf("127.0.0.%d", 1+i/500))
		if err == nil {
			a.conns = append(a.conns, c)
		}
		for id, params := range w.params(s) {
			if err == nil {
				err = c.do(wsRequest(rig.Call(id, "eth_subscribe", params...)))
			}
		}
		if err != nil {
			a.leave()
			return nil, fmt.Errorf("subscriber %d: %w", i, err)
		}
		c.c.SetDeadline(time.Time{})
		go a.follow(c)
	}
	return a, nil
}

func (a *audience) follow(c *wsConn) {
	for {
		_, err := c.next()
		if err != nil {
			if !a.ended.Load() {
				a.failed.CompareAndSwap(nil, &err)
			}
			return
		}
		// The clock is read for the first notification and, roughly, the last:
		// reading it for each one would be paid for by the node next door.
		if n := a.got.Add(1); n == 1 || c.r.Buffered() == 0 {
			now := time.Now()
			a.mu.Lock()
			if a.first.IsZero() {
				a.first = now
			}
			a.last = now
			a.mu.Unlock()
		}
	}
}

func (a *audience) leave() {
	a.ended.Store(true)
	for _, c := range a.conns {
		c.close()
	}
}

// expect waits until n notifications have come since the last reset.
func (a *audience) expect(ctx context.Context, n int64, limit time.Duration) error {
	for end := time.Now().Add(limit); a.got.Load() < n; {
		if p := a.failed.Load(); p != nil {
			return fmt.Errorf("a subscriber was lost: %w", *p)
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d of %d notifications came within %v", a.got.Load(), n, limit)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		time.Sleep(2 * time.Millisecond)
	}
	return nil
}

func (a *audience) reset() {
	a.mu.Lock()
	a.first, a.last = time.Time{}, time.Time{}
	a.got.Store(0)
	a.mu.Unlock()
}

// blockTime is long enough for the slower side to be done with one block before the next,
// or the two would be measured under different loads.
const blockTime = 4 // seconds

func runFanouts(ctx context.Context, opt options, stock, ours *side, list []fanout, emit func(Row)) error {
	idle := make(map[*side]float64) // processors used with nobody listening
	for _, s := range []*side{stock, ours} {
		if err := s.start(ctx, blockTime, opt.flags); err != nil {
			return err
		}
	}
	for _, s := range []*side{stock, ours} {
		s.node.Quiet(ctx, 20*time.Second)
		const d = 2 * blockTime * time.Second
		idle[s] = s.node.CPUOver(ctx, d).Seconds() / d.Seconds()
	}
	for _, w := range list {
		if err := w.run(ctx, opt, stock, ours, idle, emit); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	emit(memoryRow("fanout", stock, ours))
	return nil
}

func (w fanout) run(ctx context.Context, opt options, stock, ours *side, idle map[*side]float64, emit func(Row)) error {
	audiences := make(map[*side]*audience)
	for _, s := range []*side{stock, ours} {
		a, err := w.gather(s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		defer a.leave()
		audiences[s] = a
	}
	cost, spread := newPair("CPU us/notification", false), newPair("first to last ms", false)
	err := inTurn(ctx, opt.rounds, stock, ours, func(s *side) error {
		m, err := w.sample(ctx, s, audiences[s])
		if err == nil {
			cost.add(s, max((m.cpu-idle[s]*m.took.Seconds())/float64(m.notifications), 0)*1e6)
			spread.add(s, m.spread.Seconds()*1e3)
		}
		return err
	})
	if err == nil && opt.profile != "" {
		err = w.profile(ctx, opt, audiences)
	}
	if err != nil {
		return err
	}
	for _, a := range audiences {
		if a.failed.Load() != nil {
			return errors.New("a subscriber was lost")
		}
	}
	emit(Row{Group: "fanout", Workload: w.name, Rounds: opt.rounds, Measures: []Measure{cost.measure(), spread.measure()}})
	return nil
}

// fanoutSample is what one event cost.
type fanoutSample struct {
	notifications int
	cpu           float64 // seconds, of the node
	took          time.Duration
	spread        time.Duration // from the first notification to the last
}

func (w fanout) sample(ctx context.Context, s *side, a *audience) (m fanoutSample, err error) {
	each := 0
	if w.heads {
		a.reset()
		if err := a.expect(ctx, int64(w.subscribers), 30*time.Second); err != nil {
			return m, err
		}
		s.node.Quiet(ctx, 3*time.Second)
		each++
	}
	a.reset()
	cpu, begun := s.cpu(), time.Now()
	if w.trigger != nil {
		n, err := w.trigger(ctx, s)
		if err != nil {
			return m, err
		}
		each += n
	}
	m.notifications = w.subscribers * each
	if err := a.expect(ctx, int64(m.notifications), 60*time.Second); err != nil {
		return m, err
	}
	time.Sleep(20 * time.Millisecond) // what the node does after the last byte
	m.cpu, m.took = (s.cpu() - cpu).Seconds(), time.Since(begun)
	a.mu.Lock()
	defer a.mu.Unlock()
	m.spread = a.last.Sub(a.first)
	return m, nil
}

// profileTime is how long a profile of a fan-out is: five blocks.
const profileTime = 5 * blockTime * time.Second

// profile saves a processor profile of each side while it delivers.
func (w fanout) profile(ctx context.Context, opt options, audiences map[*side]*audience) error {
	for s, a := range audiences {
		done := make(chan error, 1)
		go func() { done <- s.profile(opt.profile, strings.ReplaceAll(w.name, "/", "-"), profileTime) }()
		for begun := time.Now(); time.Since(begun) < profileTime-blockTime*time.Second; {
			if _, err := w.sample(ctx, s, a); err != nil {
				return err
			}
		}
		if err := <-done; err != nil {
			return err
		}
	}
	return nil
}
