// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"context"
	"fmt"
	"math/big"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"rpcguard/tests/slowclient/rig"
)

// held is a workload of one client that asks for eth_blockNumber, over and over with a
// pause, beside clients whose calls never let the processors rest: how long do trivial
// calls take while every permit for the EVM is held?
type held struct {
	name   string
	calls  int // clients with an eth_call each, about 0.1 s of the EVM
	traces int // likewise with a trace
}

func helds() []held {
	return []held{
		{"latency/unloaded", 0, 0},
		{"latency/permits-held", 8, 4},
	}
}

const (
	heldTime  = 5 * time.Second
	heldPause = 10 * time.Millisecond
	heldTurns = 500_000 // of the burner: some 25 million gas
)

func runHelds(ctx context.Context, opt options, stock, ours *side, list []held, emit func(Row)) error {
	for _, s := range []*side{stock, ours} {
		if err := s.start(ctx, 1, opt.flags); err != nil {
			return err
		}
	}
	rounds := max(1, opt.rounds/3)
	for _, w := range list {
		p50, p99, most := newPair("blockNumber p50 ms", false), newPair("blockNumber p99 ms", false), newPair("most ms", false)
		done := newPair("EVM calls/s", true)
		err := inTurn(ctx, rounds, stock, ours, func(s *side) error {
			times, n, err := w.sample(s)
			if err != nil {
				return err
			}
			p50.add(s, times.Quantile(0.5).Seconds()*1e3)
			p99.add(s, times.Quantile(0.99).Seconds()*1e3)
			most.add(s, times.Max().Seconds()*1e3)
			done.add(s, float64(n)/heldTime.Seconds())
			s.node.Quiet(ctx, 30*time.Second)
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		row := Row{Group: "latency", Workload: w.name, Rounds: rounds, Measures: []Measure{p50.measure(), p99.measure(), most.measure()}}
		if w.calls+w.traces > 0 {
			row.Measures = append(row.Measures, done.measure())
		}
		emit(row)
	}
	return nil
}

// sample keeps the processors busy for heldTime and returns how long eth_blockNumber
// took meanwhile, and how many of the calls in the way were answered.
func (w held) sample(s *side) (times *rig.Series, n int64, err error) {
	to := map[string]any{"to": s.burner, "data": common.BigToHash(big.NewInt(heldTurns))}
	call := httpRequest(rig.Call(1, "eth_call", to, "latest"), false)
	trace := httpRequest(rig.Call(1, "debug_traceCall", to, "latest", map[string]any{"tracer": "noopTracer"}), false)

	probe, err := dialHTTP(s.node.HTTP, "")
	if err != nil {
		return nil, 0, err
	}
	defer probe.close()
	var (
		stop     atomic.Bool
		answered atomic.Int64
		gone     = make(chan struct{})
		clients  []conn
	)
	for i := range w.calls + w.traces {
		c, err := dialHTTP(s.node.HTTP, "")
		if err != nil {
			return nil, 0, err
		}
		clients = append(clients, c)
		request := call
		if i >= w.calls {
			request = trace
		}
		go func() {
			defer func() { gone <- struct{}{} }()
			for !stop.Load() {
				if c.do(request) == nil {
					answered.Add(1)
				} else {
					time.Sleep(heldPause) // refused: it comes again
				}
			}
		}()
	}
	time.Sleep(heldTime / 10) // until all of them wait or run
	before := answered.Load()
	ask := httpRequest(rig.Call(1, "eth_blockNumber"), false)
	times = new(rig.Series)
	for end := time.Now().Add(heldTime); time.Now().Before(end) && err == nil; time.Sleep(heldPause) {
		begun := time.Now()
		err = probe.do(ask)
		times.Add(time.Since(begun))
	}
	n = answered.Load() - before
	stop.Store(true)
	for range clients {
		<-gone
	}
	for _, c := range clients {
		c.close()
	}
	return times, n, err
}
