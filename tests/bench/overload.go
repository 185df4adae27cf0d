// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"

	"rpcguard/tests/slowclient/attack"
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
	overloadTime  = 6 * time.Second
	overloadGrace = 5 * time.Second // how long answers are waited for after that
	overloadConns = 64
	capacityConns = 8
)

// The calls of the mix.
const (
	kindRead  = iota
	kindEVM   // some ms
	kindTrace // some more
	numKinds
)

// mixed is which call comes when: 16 reads, 3 calls of the EVM and a trace.
func mixed(i int) int {
	switch i %= 20; {
	case i == 10:
		return kindTrace
	case i%7 == 3:
		return kindEVM
	}
	return kindRead
}

// overloadID is the id of the first call of a connection. All ids have as many digits.
const overloadID = 10000000

func (s *side) kinds() (bodies [numKinds][]byte) {
	arg := func(n uint64) string {
		return hexutil.Encode(common.BigToHash(hexutil.MustDecodeBig(hexutil.EncodeUint64(n))).Bytes())
	}
	call := func(turns uint64) map[string]any { return map[string]any{"to": s.burner, "data": arg(turns)} }
	bodies[kindRead] = rig.Call(overloadID, "eth_getBalance", s.account.Addr, "latest")
	bodies[kindEVM] = rig.Call(overloadID, "eth_call", call(30000), "latest")
	bodies[kindTrace] = rig.Call(overloadID, "debug_traceCall", call(40000), "latest", map[string]any{"tracer": "noopTracer"})
	return bodies
}

// mix is the calls of a round of the mix over HTTP.
func (s *side) mix() (requests [][]byte) {
	bodies := s.kinds()
	for i := range 20 {
		requests = append(requests, httpRequest(bodies[mixed(i)], false))
	}
	return requests
}

// stream sends its part of the mix on one WebSocket connection, by the clock, and never
// waits for an answer. What is due together leaves in one write, so that the generator
// takes little of the processors that it shares with the node.
type stream struct {
	c     *wsConn
	first int // of the mix, so that the connections do not all begin with the same

	mu     sync.Mutex
	due    []time.Duration // of the calls sent, since the beginning
	ok     [numKinds]int   // answered while the clock ran
	no     int             // refused
	served []time.Duration // from due to answered
}

func (t *stream) write(frames [numKinds][]byte, idAt [numKinds]int, begun time.Time, every, d time.Duration) (unsent int) {
	t.c.c.SetDeadline(begun.Add(d + overloadGrace))
	t.c.c.SetWriteDeadline(begun.Add(d))
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	total, n := int(d/every), 0
	var buf []byte
	for n < total {
		now := time.Since(begun)
		buf = buf[:0]
		t.mu.Lock()
		for ; n < total && time.Duration(n)*every <= now; n++ {
			kind := mixed(t.first + n)
			at := len(buf) + idAt[kind]
			buf = append(buf, frames[kind]...)
			strconv.AppendInt(buf[:at], int64(overloadID+n), 10)
			t.due = append(t.due, time.Duration(n)*every)
		}
		t.mu.Unlock()
		if _, err := t.c.c.Write(buf); err != nil || now >= d {
			break // the node takes no more
		}
		<-tick.C
	}
	return total - n
}

func (t *stream) read(begun time.Time, d time.Duration) {
	for {
		head, err := t.c.next()
		if err != nil {
			return
		}
		at := bytes.Index(head, []byte(`"id":`))
		if at < 0 || len(head) < at+13 {
			continue
		}
		id, err := strconv.Atoi(string(head[at+5 : at+13]))
		now := time.Since(begun)
		t.mu.Lock()
		switch i := id - overloadID; {
		case err != nil || i < 0 || i >= len(t.due):
		case !hasResult(head[:min(len(head), headLength)]):
			t.no++
		default:
			t.served = append(t.served, now-t.due[i])
			if now < d {
				t.ok[mixed(t.first+i)]++
			}
		}
		t.mu.Unlock()
	}
}

func (t *stream) answered() (all bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.served)+t.no == len(t.due)
}

// crowd is what became of the calls of all streams to one node.
type crowd struct {
	ok                   [numKinds]int
	refused, unsent      int
	served               rig.Series
	nodeCPU, generatorOf float64 // of one processor, while the clock ran; of all processors
}

func (c *crowd) answered() (n int) {
	for _, k := range c.ok {
		n += k
	}
	return n
}

// rush sends rate calls a second for d and waits for the answers.
func rush(ctx context.Context, s *side, rate float64, d time.Duration) (*crowd, error) {
	var frames [numKinds][]byte
	var idAt [numKinds]int
	for k, body := range s.kinds() {
		frames[k] = wsRequest(body)
		idAt[k] = bytes.Index(frames[k], []byte(strconv.Itoa(overloadID)))
	}
	var (
		c       = new(crowd)
		writers sync.WaitGroup
		readers sync.WaitGroup
		mu      sync.Mutex
		streams []*stream
	)
	for i := range overloadConns {
		conn, err := dialWS(s.node.WS, "")
		if err != nil {
			return nil, err
		}
		defer conn.close()
		streams = append(streams, &stream{c: conn, first: i * 7})
	}
	begun, cpu, own := time.Now(), s.cpu(), ownCPU()
	every := time.Duration(float64(time.Second) * overloadConns / rate)
	for _, t := range streams {
		writers.Add(1)
		readers.Add(1)
		go func() {
			defer writers.Done()
			unsent := t.write(frames, idAt, begun, every, d)
			mu.Lock()
			defer mu.Unlock()
			c.unsent += unsent
		}()
		go func() { defer readers.Done(); t.read(begun, d) }()
	}
	rig.Sleep(ctx, time.Until(begun.Add(d)))
	c.nodeCPU = (s.cpu() - cpu).Seconds() / d.Seconds()
	c.generatorOf = (ownCPU() - own).Seconds() / d.Seconds() / float64(runtime.NumCPU())
	writers.Wait()
	rig.Until(ctx, overloadGrace, func() bool {
		for _, t := range streams {
			if !t.answered() {
				return false
			}
		}
		return true
	})
	for _, t := range streams {
		t.c.close()
	}
	readers.Wait()
	for _, t := range streams {
		for k, n := range t.ok {
			c.ok[k] += n
		}
		c.refused += t.no
		for _, took := range t.served {
			c.served.Add(took)
		}
	}
	return c, nil
}

// ownCPU is the processor time of the generator.
func ownCPU() time.Duration {
	l, _ := rig.Look(os.Getpid())
	return l.CPU
}

// costs is the processor time that a call of each kind costs the node when nothing else
// runs.
func costs(s *side) (each [numKinds]time.Duration, err error) {
	for k, body := range s.kinds() {
		l, err := request{conns: 2, body: func(*side) []byte { return body }}.open(s)
		if err != nil {
			return each, err
		}
		cpu := s.cpu()
		n, _, err := l.run(time.Second)
		l.close()
		if err != nil {
			return each, err
		}
		each[k] = (s.cpu() - cpu) / time.Duration(max(n, 1))
	}
	return each, nil
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
	calm := make(map[*side]rig.PoliteReport)
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
		calm[s] = p.Stop(5 * time.Second)
	}
	reference := medianOf(base.stock)
	// What a call is worth is what it costs stock: the answers of different loads are of
	// different kinds, and a node that drops everything dear would look best by number.
	worth, err := costs(stock)
	if err != nil {
		return err
	}
	emit(Row{Group: "overload", Workload: "overload/capacity", Rounds: 1, Measures: []Measure{base.measure()},
		Note: fmt.Sprintf("polite p99 unloaded: stock %v, ours %v; worth of a read %v, of an EVM call %v, of a trace %v",
			calm[stock].P99.Round(100*time.Microsecond), calm[ours].P99.Round(100*time.Microsecond), worth[kindRead], worth[kindEVM], worth[kindTrace])})

	// A sample takes some ten seconds, and what it shows is no matter of percents.
	rounds := max(1, opt.rounds/3)
	for _, w := range list {
		row := Row{Group: "overload", Workload: w.name, Rounds: rounds}
		names := []string{"goodput ms worth/s", "goodput calls/s", "reads/s", "EVM calls/s", "traces/s", "ms worth/node CPU s",
			"admitted p50 ms", "admitted p99 ms", "refused/s", "unsent/s", "polite p99 ms", "its bound ms",
			"idle server p99 ms", "generator CPU %"}
		pairs := make([]*pair, len(names))
		for i, name := range names {
			pairs[i] = newPair(name, i < 6)
		}
		err := inTurn(ctx, rounds, stock, ours, func(s *side) error {
			p, err := rig.StartPolite(ctx, s.node, setups[s])
			if err != nil {
				return err
			}
			c, err := rush(ctx, s, w.multiple*reference, overloadTime)
			report := p.Stop(5 * time.Second)
			if err != nil {
				return err
			}
			var value float64
			for k, n := range c.ok {
				value += float64(n) * worth[k].Seconds() * 1e3
			}
			d := overloadTime.Seconds()
			for i, v := range []float64{value / d, float64(c.answered()) / d, float64(c.ok[kindRead]) / d, float64(c.ok[kindEVM]) / d,
				float64(c.ok[kindTrace]) / d, value / d / c.nodeCPU, c.served.Quantile(0.5).Seconds() * 1e3,
				c.served.Quantile(0.99).Seconds() * 1e3, float64(c.refused) / d, float64(c.unsent) / d, report.P99.Seconds() * 1e3,
				attack.LatencyBound(calm[s], report).Seconds() * 1e3, report.Noise.Seconds() * 1e3, c.generatorOf * 100} {
				pairs[i].add(s, v)
			}
			if report.Failed > 0 {
				row.Note += fmt.Sprintf("%s: polite failed %d of %d; ", s.name, report.Failed, report.Calls)
			}
			s.node.Quiet(ctx, 30*time.Second)
			return nil
		})
		for _, p := range pairs {
			row.Measures = append(row.Measures, p.measure())
		}
		emit(row)
		if err != nil {
			return err
		}
	}
	emit(memoryRow("overload", stock, ours))
	return nil
}
