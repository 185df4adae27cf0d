// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"rpcguard/tests/slowclient/rig"
)

// idle is a workload of subscriptions to which nothing is delivered: what each of them
// holds of the node's memory.
type idle struct {
	name   string
	params func(i int) []any // of the i-th subscription
}

const (
	idleConns = 50
	idleSubs  = 100 // a connection
)

func idles() []idle {
	return []idle{
		{"idle/newHeads", func(int) []any { return []any{"newHeads"} }},
		{"idle/logs", func(int) []any { return []any{"logs", map[string]any{"address": common.Address{1}}} }},
		{"idle/logs of its own", func(i int) []any {
			return []any{"logs", map[string]any{"address": common.Address{1, byte(i >> 8), byte(i)}}}
		}},
	}
}

func runIdles(ctx context.Context, opt options, stock, ours *side, list []idle, emit func(Row)) error {
	for _, s := range []*side{stock, ours} {
		var err error
		if s.node, err = rig.StartNode(s.binary, rig.NodeConfig{
			Period:  3600, // no head comes between a request and its reply
			Flags:   append([]string{"rpc.client.local=false"}, opt.flags...),
			Timeout: 3 * time.Minute,
		}); err != nil {
			return err
		}
		s.watch = rig.NewWatch(s.node, 0)
	}
	for _, w := range list {
		cost := newPair("bytes a subscription", false)
		err := inTurn(ctx, opt.rounds, stock, ours, func(s *side) error {
			bytes, err := w.measure(s)
			if err == nil {
				cost.add(s, bytes)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		emit(Row{Group: "idle", Workload: w.name, Rounds: opt.rounds, Measures: []Measure{cost.measure()}})
	}
	return nil
}

// measure compares the node's memory before and after subscribing, on connections that
// are there before.
func (w idle) measure(s *side) (bytes float64, err error) {
	var conns []*wsConn
	defer func() {
		for _, c := range conns {
			c.close()
		}
	}()
	for range idleConns {
		c, err := dialWS(s.node.WS, "")
		if err != nil {
			return 0, err
		}
		conns = append(conns, c)
		if err := c.do(wsRequest(rig.Call(1, "net_version"))); err != nil {
			return 0, err
		}
	}
	before, err := s.memory()
	if err != nil {
		return 0, err
	}
	for i, c := range conns {
		for j := range idleSubs {
			if err := c.do(wsRequest(rig.Call(1, "eth_subscribe", w.params(i*idleSubs+j)...))); err != nil {
				return 0, err
			}
		}
	}
	after, err := s.memory()
	return (after - before) / (idleConns * idleSubs), err
}

// memory returns the bytes of live objects and of stacks after a collection.
func (s *side) memory() (bytes float64, err error) {
	resp, err := http.Get("http://" + s.node.Debug + "/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	seen := 0
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		var n float64
		for _, field := range []string{"# HeapAlloc = ", "# Stack = "} {
			if rest, ok := strings.CutPrefix(lines.Text(), field); ok {
				if _, err := fmt.Sscan(rest, &n); err != nil {
					return 0, err
				}
				bytes += n
				seen++
			}
		}
	}
	if seen != 2 {
		return 0, fmt.Errorf("no memory figures at %s", s.node.Debug)
	}
	return bytes, nil
}
