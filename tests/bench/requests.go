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

	"rpcguard/tests/slowclient/rig"
)

// request is a closed-loop workload: conns connections, each sending the same body again
// as soon as it is answered.
type request struct {
	name  string
	ws    bool
	gzip  bool
	conns int
	body  func(*side) []byte
}

// requestBodies are what is asked, by name. The bodies differ between the sides only in
// block numbers.
var requestBodies = []struct {
	name string
	body func(*side) []byte
}{
	{"blockNumber", func(*side) []byte { return rig.Call(1, "eth_blockNumber") }},
	{"getBalance", func(s *side) []byte { return rig.Call(1, "eth_getBalance", s.account.Addr, "latest") }},
	{"call", func(s *side) []byte {
		return rig.Call(1, "eth_call", map[string]any{"to": s.logger, "data": "0x"}, "latest")
	}},
	{"batch100", func(s *side) []byte {
		var calls [][]byte
		for i := range 100 {
			calls = append(calls, rig.Call(i, "eth_getBalance", s.account.Addr, "latest"))
		}
		return rig.Batch(calls...)
	}},
	{"block", func(s *side) []byte {
		return rig.Call(1, "eth_getBlockByNumber", fmt.Sprintf("%#x", s.full), true)
	}},
	{"logs", func(s *side) []byte {
		at := fmt.Sprintf("%#x", s.logged)
		return rig.Call(1, "eth_getLogs", map[string]any{"fromBlock": at, "toBlock": at})
	}},
}

func requests() (list []request) {
	for _, ws := range []bool{false, true} {
		transport := "http"
		if ws {
			transport = "ws"
		}
		for _, b := range requestBodies {
			for _, conns := range []int{1, 32, 256} {
				list = append(list, request{fmt.Sprintf("%s/%s/%d", transport, b.name, conns), ws, false, conns, b.body})
			}
		}
	}
	block := requestBodies[4].body
	list = append(list, request{"http/block+gzip/32", false, true, 32, block})
	upload := rig.Call(1, "eth_call", map[string]any{
		"to": "0x00000000000000000000000000000000000000dd", "data": "0x" + strings.Repeat("00", 1<<19),
	}, "latest")
	list = append(list, request{"http/upload1M/8", false, false, 8, func(*side) []byte { return upload }})
	list = append(list, request{"ws/upload1M/8", true, false, 8, func(*side) []byte { return upload }})
	return list
}

// loop is the connections of one workload to one node. They stay open between rounds.
type loop struct {
	conns   []conn
	request []byte
}

func (w request) open(s *side) (*loop, error) {
	l := new(loop)
	if body := w.body(s); w.ws {
		l.request = wsRequest(body)
	} else {
		l.request = httpRequest(body, w.gzip)
	}
	for range w.conns {
		var (
			c   conn
			err error
		)
		if w.ws {
			c, err = dialWS(s.node.WS, "")
		} else {
			c, err = dialHTTP(s.node.HTTP, "")
		}
		if err != nil {
			l.close()
			return nil, err
		}
		l.conns = append(l.conns, c)
	}
	return l, nil
}

func (l *loop) close() {
	for _, c := range l.conns {
		c.close()
	}
}

// run keeps all connections busy for d and returns the calls answered and refused. A
// connection that fails ends the sample.
func (l *loop) run(d time.Duration) (answered, refused int64, err error) {
	var (
		wg     sync.WaitGroup
		ok, no atomic.Int64
		stop   atomic.Bool
		failed atomic.Pointer[error]
	)
	timer := time.AfterFunc(d, func() { stop.Store(true) })
	defer timer.Stop()
	for _, c := range l.conns {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for !stop.Load() {
				switch err := c.do(l.request); {
				case err == nil:
					ok.Add(1)
				case errors.Is(err, errRefused):
					no.Add(1)
				default:
					failed.CompareAndSwap(nil, &err)
					stop.Store(true)
				}
			}
		}()
	}
	wg.Wait()
	if p := failed.Load(); p != nil {
		err = *p
	}
	return ok.Load(), no.Load(), err
}

// runRequests measures the workloads, and passes each row on as it is known.
func runRequests(ctx context.Context, opt options, stock, ours *side, list []request, emit func(Row)) error {
	for _, s := range []*side{stock, ours} {
		if err := s.start(ctx, 1, opt.flags); err != nil {
			return err
		}
		if err := s.fill(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	for _, w := range list {
		loops := make(map[*side]*loop)
		for _, s := range []*side{stock, ours} {
			l, err := w.open(s)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", w.name, s.name, err)
			}
			defer l.close()
			loops[s] = l
			if _, _, err := l.run(opt.duration / 4); err != nil { // warm up
				return fmt.Errorf("%s: %s: %w", w.name, s.name, err)
			}
		}
		rate, cost := newPair("calls/s", true), newPair("CPU ms/1000 calls", false)
		refused := make(map[*side]int64)
		err := inTurn(ctx, opt.rounds, stock, ours, func(s *side) error {
			cpu, begun := s.cpu(), time.Now()
			n, no, err := loops[s].run(opt.duration)
			if err == nil && n == 0 {
				err = errors.New("nothing was answered")
			}
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			refused[s] += no
			rate.add(s, float64(n)/time.Since(begun).Seconds())
			cost.add(s, (s.cpu()-cpu).Seconds()*1e6/float64(n+no))
			return nil
		})
		if err != nil {
			return err
		}
		row := Row{Group: "requests", Workload: w.name, Rounds: opt.rounds, Measures: []Measure{cost.measure(), rate.measure()}}
		if refused[stock]+refused[ours] > 0 {
			row.Note = fmt.Sprintf("refused: stock %d, ours %d", refused[stock], refused[ours])
		}
		if opt.profile != "" {
			if err := saveProfiles(opt, loops, w.name); err != nil {
				return err
			}
		}
		emit(row)
		for _, l := range loops {
			l.close()
		}
	}
	emit(memoryRow("requests", stock, ours))
	row, err := floor(ctx, opt)
	if err == nil {
		emit(row)
	}
	return err
}

// saveProfiles profiles each side under its load.
func saveProfiles(opt options, loops map[*side]*loop, name string) error {
	for s, l := range loops {
		done := make(chan error, 1)
		go func() { done <- s.profile(opt.profile, strings.ReplaceAll(name, "/", "-"), 3*time.Second) }()
		l.run(3500 * time.Millisecond)
		if err := <-done; err != nil {
			return err
		}
	}
	return nil
}

func memoryRow(group string, stock, ours *side) Row {
	m := newPair("peak RSS MB", false)
	for _, s := range []*side{stock, ours} {
		m.add(s, float64(s.watch.Peak())/(1<<20))
	}
	return Row{Group: group, Workload: "memory", Rounds: 1, Measures: []Measure{m.measure()}}
}
