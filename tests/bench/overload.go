// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"

	"rpcguard/tests/slowclient/rig"
)

// overload is an open-loop workload: calls arrive by the clock, at a multiple of the
// node's capacity, whether or not earlier ones have been answered.
type overload struct {
	name     string
	multiple float64
}

func overloads() (list []overload) {
	for _, m := range []float64{1, 2, 5, 10, 20} {
		list = append(list, overload{fmt.Sprintf("overload/%gx", m), m})
	}
	return list
}

const (
	overloadTime  = 5 * time.Second
	overloadConns = 2000 // as many calls are under way at most; the rest is not sent
	capacityConns = 8
)

// mix is 16 reads, 3 calls of the EVM (some ms each) and a trace (some more).
func (s *side) mix() (requests [][]byte) {
	arg := func(n uint64) string {
		return hexutil.Encode(common.BigToHash(hexutil.MustDecodeBig(hexutil.EncodeUint64(n))).Bytes())
	}
	call := func(turns uint64) map[string]any { return map[string]any{"to": s.burner, "data": arg(turns)} }
	read := httpRequest(rig.Call(1, "eth_getBalance", s.account.Addr, "latest"), false)
	run := httpRequest(rig.Call(1, "eth_call", call(30000), "latest"), false)
	trace := httpRequest(rig.Call(1, "debug_traceCall", call(40000), "latest", map[string]any{"tracer": "noopTracer"}), false)
	for i := range 20 {
		switch {
		case i == 10:
			requests = append(requests, trace)
		case i%7 == 3:
			requests = append(requests, run)
		default:
			requests = append(requests, read)
		}
	}
	return requests
}

// crowd sends the mix to one node.
type crowd struct {
	node *rig.Node
	wg   sync.WaitGroup

	mu     sync.Mutex
	open   int
	served rig.Series // from the time a call was due
	ok     int        // of served, answered while the clock ran
	count  struct{ refused, failed, unsent int }
	until  time.Time
}

func (c *crowd) worker(request []byte, due time.Time, work <-chan job) {
	defer c.wg.Done()
	conn, err := dialHTTP(c.node.HTTP, "")
	if err != nil {
		c.mu.Lock()
		c.count.failed++
		c.open--
		c.mu.Unlock()
		return
	}
	defer conn.close()
	for {
		err := conn.do(request)
		now := time.Now()
		c.mu.Lock()
		switch {
		case err == nil:
			c.served.Add(now.Sub(due))
			if now.Before(c.until) {
				c.ok++
			}
		case errors.Is(err, errRefused):
			c.count.refused++
		default:
			c.count.failed++
			c.open--
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		j, more := <-work
		if !more {
			return
		}
		request, due = j.request, j.due
	}
}

type job struct {
	request []byte
	due     time.Time
}

// rush sends rate calls a second for d and waits for the answers.
func rush(ctx context.Context, s *side, rate float64, d time.Duration) *crowd {
	var (
		c        = &crowd{node: s.node, until: time.Now().Add(d)}
		requests = s.mix()
		work     = make(chan job)
		begun    = time.Now()
		sent     int
	)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for time.Since(begun) < d && ctx.Err() == nil {
		for due := int(time.Since(begun).Seconds() * rate); sent < due; sent++ {
			j := job{requests[sent%len(requests)], begun.Add(time.Duration(float64(sent) / rate * 1e9))}
			select {
			case work <- j:
				continue
			default:
			}
			c.mu.Lock()
			full := c.open >= overloadConns
			if full {
				c.count.unsent++
			} else {
				c.open++
			}
			c.mu.Unlock()
			if !full {
				c.wg.Add(1)
				go c.worker(j.request, j.due, work)
			}
		}
		<-tick.C
	}
	close(work)
	c.wg.Wait()
	return c
}

// capacity is what the node serves of the mix when a few clients ask one call at a time.
func capacity(s *side) (float64, error) {
	var (
		requests = s.mix()
		wg       sync.WaitGroup
		mu       sync.Mutex
		total    int
		failed   error
	)
	const d = 3 * time.Second
	end := time.Now().Add(d)
	for i := range capacityConns {
		wg.Add(1)
		go func() {
			defer wg.Done()
			c, err := dialHTTP(s.node.HTTP, "")
			n := 0
			if err == nil {
				defer c.close()
				for k := i * len(requests) / capacityConns; time.Now().Before(end) && err == nil; k++ {
					err = c.do(requests[k%len(requests)])
					n++
				}
			}
			mu.Lock()
			defer mu.Unlock()
			total += n
			if err != nil {
				failed = err
			}
		}()
	}
	wg.Wait()
	return float64(total) / d.Seconds(), failed
}

func runOverloads(ctx context.Context, opt options, stock, ours *side, list []overload, emit func(Row)) error {
	setups := make(map[*side]*rig.PoliteSetup)
	calm := make(map[*side]time.Duration)
	for _, s := range []*side{stock, ours} {
		if err := s.start(ctx, 1, opt.flags); err != nil {
			return err
		}
	}
	base := newPair("capacity calls/s", true)
	for _, s := range []*side{stock, ours} {
		n, err := capacity(s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		base.add(s, n)
		if setups[s], err = rig.NewPoliteSetup(ctx, s.node); err != nil {
			return err
		}
		p, err := rig.StartPolite(ctx, s.node, setups[s])
		if err != nil {
			return err
		}
		rig.Sleep(ctx, 5*time.Second)
		calm[s] = p.Stop(5 * time.Second).P99
	}
	reference := medianOf(base.stock)
	emit(Row{Group: "overload", Workload: "overload/capacity", Rounds: 1, Measures: []Measure{base.measure()},
		Note: fmt.Sprintf("polite p99 unloaded: stock %v, ours %v", calm[stock].Round(100*time.Microsecond), calm[ours].Round(100*time.Microsecond))})

	// A sample takes some ten seconds, and what it shows is no matter of percents.
	rounds := max(1, opt.rounds/3)
	for _, w := range list {
		goodput, p50, p99 := newPair("goodput calls/s", true), newPair("admitted p50 ms", false), newPair("admitted p99 ms", false)
		refused, polite := newPair("refused/s", false), newPair("polite p99 ms", false)
		var note string
		err := inTurn(ctx, rounds, stock, ours, func(s *side) error {
			p, err := rig.StartPolite(ctx, s.node, setups[s])
			if err != nil {
				return err
			}
			c := rush(ctx, s, w.multiple*reference, overloadTime)
			report := p.Stop(5 * time.Second)
			goodput.add(s, float64(c.ok)/overloadTime.Seconds())
			p50.add(s, c.served.Quantile(0.5).Seconds()*1e3)
			p99.add(s, c.served.Quantile(0.99).Seconds()*1e3)
			refused.add(s, float64(c.count.refused)/overloadTime.Seconds())
			polite.add(s, report.P99.Seconds()*1e3)
			if report.Failed > 0 || c.count.failed > 0 {
				note += fmt.Sprintf("%s: %d calls failed, polite %d of %d; ", s.name, c.count.failed, report.Failed, report.Calls)
			}
			s.node.Quiet(ctx, 30*time.Second)
			return nil
		})
		emit(Row{Group: "overload", Workload: w.name, Rounds: rounds, Note: note,
			Measures: []Measure{goodput.measure(), p50.measure(), p99.measure(), refused.measure(), polite.measure()}})
		if err != nil {
			return err
		}
	}
	emit(memoryRow("overload", stock, ours))
	return nil
}
