// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ethereum/go-ethereum/common/hexutil"

	"rpcguard/tests/slowclient/rig"
)

// refused is a workload of calls that are all refused by ours, because one call that
// sleeps holds the only permit and nobody may wait. Stock, which refuses nothing, is
// asked for a method that it does not have: the cheapest error that it gives on the same
// transport.
type refused struct {
	name  string
	ws    bool
	batch int // calls in a message; 0: one, not in a batch
}

const refusedConns = 32

func refusals() []refused {
	return []refused{
		{"refused/http", false, 0},
		{"refused/http/batch100", false, 100},
		{"refused/ws", true, 0},
		{"refused/ws/batch100", true, 100},
	}
}

func (w refused) request(s *side) request {
	return request{name: w.name, ws: w.ws, conns: refusedConns, body: func(*side) []byte {
		one := func(id int) []byte {
			if s.name == "ours" {
				return rig.Call(id, "eth_getBalance", s.account.Addr, "latest")
			}
			return rig.Call(id, "eth_noSuchMethod", s.account.Addr, "latest")
		}
		if w.batch == 0 {
			return one(1)
		}
		var calls [][]byte
		for i := range w.batch {
			calls = append(calls, one(i))
		}
		return rig.Batch(calls...)
	}}
}

// holdPermits lets one call at a time execute and none wait, and has one sleep that
// nothing will wake: it waits for a transaction that cannot be mined.
func (s *side) holdPermits(ctx context.Context) (end func(), err error) {
	ipc, err := rig.DialIPC(s.node)
	if err != nil {
		return nil, err
	}
	defer ipc.Close()
	r, err := ipc.Call(5*time.Second, "admin_setConcurrencyLimit", map[string]any{"maxConcurrent": 1, "maxQueueSize": 0})
	if err == nil && r.Err != nil {
		err = r.Err
	}
	if err != nil {
		return nil, err
	}
	c, err := dialWS(s.node.WS, "")
	if err != nil {
		return nil, err
	}
	tx := s.account.SignNonce(1<<20, &s.logger, nil, 21000)
	raw, _ := tx.MarshalBinary()
	if _, err := c.c.Write(wsRequest(rig.Call(1, "eth_sendRawTransactionSync", hexutil.Encode(raw), 600_000))); err != nil {
		c.close()
		return nil, err
	}
	c.c.SetDeadline(time.Time{})
	go c.next() // answers pings, without which the connection would end
	probe := rig.NewHTTP(s.node.HTTP, rig.Dialer{})
	defer probe.Close()
	for range 200 {
		rig.Sleep(ctx, 10*time.Millisecond)
		r, err := probe.Call(ctx, "eth_getBalance", s.account.Addr, "latest")
		if err == nil && r.Code() == -32013 {
			return c.close, nil
		}
	}
	c.close()
	return nil, errors.New("the permit is not held")
}

func runRefusals(ctx context.Context, opt options, stock, ours *side, list []refused, emit func(Row)) error {
	for _, s := range []*side{stock, ours} {
		// The sleeping call must hold what others need: as it comes, it would be parked.
		flags := append([]string{"rpc.admission.heavy-methods=eth_sendRawTransactionSync", "rpc.txsync.maxtimeout=10m"}, opt.flags...)
		if err := s.start(ctx, 1, flags); err != nil {
			return err
		}
	}
	end, err := ours.holdPermits(ctx)
	if err != nil {
		return fmt.Errorf("ours: %w", err)
	}
	defer end()
	for _, w := range list {
		if err := w.measure(ctx, opt, stock, ours, emit); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	return nil
}

func (w refused) measure(ctx context.Context, opt options, stock, ours *side, emit func(Row)) error {
	loops := make(map[*side]*loop)
	for _, s := range []*side{stock, ours} {
		l, err := w.request(s).open(s)
		if err != nil {
			return err
		}
		defer l.close()
		loops[s] = l
		if _, _, err := l.run(opt.duration / 4); err != nil { // warm up
			return err
		}
	}
	cost, rate := newPair("CPU us an answer", false), newPair("answers/s", true)
	each := float64(max(1, w.batch))
	err := inTurn(ctx, opt.rounds, stock, ours, func(s *side) error {
		cpu, begun := s.cpu(), time.Now()
		served, n, err := loops[s].run(opt.duration)
		if err == nil && (served > 0 || n == 0) {
			err = fmt.Errorf("%d served and %d refused, want all refused", served, n)
		}
		if err != nil {
			return err
		}
		cost.add(s, (s.cpu()-cpu).Seconds()*1e6/float64(n)/each)
		rate.add(s, float64(n)*each/time.Since(begun).Seconds())
		return nil
	})
	if err == nil && opt.profile != "" {
		err = saveProfiles(opt, loops, w.name)
	}
	emit(Row{Group: "refused", Workload: w.name, Rounds: opt.rounds, Measures: []Measure{cost.measure(), rate.measure()}})
	return err
}
