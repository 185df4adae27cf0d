// SPDX-License-Identifier: LGPL-3.0-or-later

// Command fanout measures what delivering notifications costs a node: processor
// time per notification delivered to many healthy subscribers, and memory per idle
// subscription. Given two binaries it runs them in pairs, one after another, so that
// what else the machine does falls on both.
//
//	go run ./tests/bench/fanout --binary stock --binary hardened --kind logs --pairs 3
//
// Kinds: heads (one notification a block), logs (heads, and a block of --events
// logs), txs (full bodies of --events transactions a second), idle (memory).
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"rpcguard/tests/slowclient/rig"
)

type binaries []string

func (b *binaries) String() string     { return fmt.Sprint(*b) }
func (b *binaries) Set(v string) error { *b = append(*b, v); return nil }

var (
	paths   binaries
	kind    = flag.String("kind", "logs", "heads, logs, txs or idle")
	subs    = flag.Int("subs", 1000, "subscribers, each on a connection of its own")
	events  = flag.Int("events", 100, "logs a block, or transactions a second")
	pairs   = flag.Int("pairs", 3, "runs of each binary")
	seconds = flag.Int("seconds", 10, "length of a run")
)

func main() {
	flag.Var(&paths, "binary", "a node's binary; twice for a comparison")
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "fanout:", err)
		os.Exit(1)
	}
}

func run() error {
	defer rig.StopAll()
	costs := make([][]float64, len(paths))
	for pair := range *pairs {
		for i, path := range paths {
			b, err := rig.ProbeBinary(path)
			if err != nil {
				return err
			}
			cost, err := measure(b)
			if err != nil {
				return err
			}
			costs[i] = append(costs[i], cost)
			fmt.Printf("pair %d %-30s %8.2f\n", pair+1, path, cost)
		}
	}
	for i, path := range paths {
		fmt.Printf("%-30s mean %8.2f\n", path, mean(costs[i]))
	}
	if len(paths) == 2 {
		var ratios []float64
		for i := range costs[0] {
			ratios = append(ratios, costs[1][i]/costs[0][i])
		}
		fmt.Printf("second / first: mean %.3f, of %.3f to %.3f\n", mean(ratios), slices.Min(ratios), slices.Max(ratios))
	}
	return nil
}

func mean(v []float64) (sum float64) {
	for _, x := range v {
		sum += x
	}
	return sum / math.Max(1, float64(len(v)))
}

// measure starts a node and returns microseconds of its processors a notification,
// or bytes an idle subscription.
func measure(b *rig.Binary) (float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	node, err := rig.StartNode(b, rig.NodeConfig{Period: 1})
	if err != nil {
		return 0, err
	}
	defer node.Stop()
	if *kind == "idle" {
		return measureIdle(ctx, node)
	}
	acct, err := rig.NewAccount(ctx, node)
	if err != nil {
		return 0, err
	}
	logger, err := acct.Logger(ctx)
	if err != nil {
		return 0, err
	}
	load, stop := context.WithCancel(ctx)
	defer stop()
	var flow sync.WaitGroup
	defer flow.Wait()
	defer stop()
	flow.Go(func() {
		for tick := time.NewTicker(time.Second); ; {
			select {
			case <-load.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
			switch *kind {
			case "logs":
				acct.Send(load, acct.LogTx(logger, uint64(*events)))
			case "txs":
				for range *events {
					acct.Send(load, acct.BigTx(100))
				}
			}
		}
	})
	length := time.Duration(*seconds) * time.Second
	idle := node.CPUOver(ctx, length) // the same blocks, nobody listens

	var frames atomic.Int64
	for i := range *subs {
		ws, err := rig.DialWS(ctx, node.WS, rig.Attacker(i%20))
		if err != nil {
			return 0, err
		}
		defer ws.Abort()
		for _, params := range map[string][][]any{
			"heads": {{"newHeads"}},
			"logs":  {{"newHeads"}, {"logs", map[string]any{}}},
			"txs":   {{"newPendingTransactions", true}},
		}[*kind] {
			if r, err := ws.Call(20*time.Second, "eth_subscribe", params...); err != nil || r.Err != nil {
				return 0, fmt.Errorf("subscribing: %v %v", err, r)
			}
		}
		go count(ws.Net, &frames)
	}
	time.Sleep(2 * time.Second)
	before := frames.Load()
	used := node.CPUOver(ctx, length)
	n := frames.Load() - before
	fmt.Printf("  %d notifications, %.2f s of processors, %.2f s without subscribers\n", n, used.Seconds(), idle.Seconds())
	return float64((used - idle).Microseconds()) / float64(n), nil
}

// count reads WebSocket frames of a server and counts them.
func count(conn io.Reader, frames *atomic.Int64) {
	br := bufio.NewReaderSize(conn, 64<<10)
	for {
		head, err := br.Peek(2)
		if err != nil {
			return
		}
		n, skip := int(head[1]&0x7f), 2
		switch n {
		case 126:
			skip = 4
			if head, err = br.Peek(skip); err != nil {
				return
			}
			n = int(binary.BigEndian.Uint16(head[2:]))
		case 127:
			skip = 10
			if head, err = br.Peek(skip); err != nil {
				return
			}
			n = int(binary.BigEndian.Uint64(head[2:]))
		}
		if _, err := br.Discard(skip + n); err != nil {
			return
		}
		frames.Add(1)
	}
}

// measureIdle counts what is on the node's heap for subscriptions without events, and
// their goroutines, whose stacks are not on it.
func measureIdle(ctx context.Context, node *rig.Node) (float64, error) {
	ws, err := rig.DialWS(ctx, node.WS, rig.Attacker(0))
	if err != nil {
		return 0, err
	}
	defer ws.Abort()
	node.Heap()
	before := node.Heap()
	goroutines := node.Goroutines()
	for range *subs {
		if r, err := ws.Call(20*time.Second, "eth_subscribe", "logs", map[string]any{"address": "0x0000000000000000000000000000000000000001"}); err != nil || r.Err != nil {
			return 0, fmt.Errorf("subscribing: %v %v", err, r)
		}
	}
	node.Heap()
	after := node.Heap()
	fmt.Printf("  %d goroutines more\n", node.Goroutines()-goroutines)
	return float64(after-before) / float64(*subs), nil
}
