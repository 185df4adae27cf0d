// SPDX-License-Identifier: LGPL-3.0-or-later

package rig

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
)

const (
	politeRate    = 20 // calls a second of each method
	politeTxRate  = 2  // transactions a second, one log each
	politeTimeout = 20 * time.Second
	politeFlight  = 400 // calls under way at most: 10 s of silence
)

// Polite is the well-behaved client whose experience is the verdict.
//
// Its calls are started by the clock, not by the answer before: a server that
// stops for a second is seen by every call of that second.
type Polite struct {
	node    *Node
	acct    *Account // nil: an endpoint without a chain of ours
	logger  common.Address
	http    *HTTP
	control *HTTP
	from    Dialer

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup // the reader of events
	asking sync.WaitGroup // the loops that start calls and transactions
	calls  sync.WaitGroup

	light, noise Series
	all          Series // calls of the node, light ones and others
	announced    Series // from sending a transaction to its announcement

	mu       sync.Mutex
	asked    int
	failed   int
	failure  string // the first one
	sent     []common.Hash
	sentAt   map[common.Hash]time.Time
	pending  []common.Hash // our own, as announced
	logged   []common.Hash // our own, as logged
	heads    uint64        // last number
	headHash common.Hash
	nheads   int
	lastHead time.Time
	gap      time.Duration
	problems []string
	wsErr    error
	ws       *WS
}

// PoliteReport is what a polite client saw. Durations are nanoseconds in JSON.
type PoliteReport struct {
	Calls     int           `json:"calls"`
	Failed    int           `json:"failed"`
	Failure   string        `json:"failure,omitempty"`
	P50       time.Duration `json:"p50"`
	P99       time.Duration `json:"p99"`
	LightP99  time.Duration `json:"lightP99"`
	LightMax  time.Duration `json:"lightMax"`
	Noise     time.Duration `json:"noise"`  // 99 % of an idle server's answers came within
	Others    float64       `json:"others"` // share of the processors used by neither node nor suite
	Heads     int           `json:"heads"`
	HeadGap   time.Duration `json:"headGap"` // longest silence of newHeads
	Announced time.Duration `json:"announced"`
	Problems  []string      `json:"problems,omitempty"` // gaps, disorder, lost connection

	Latencies []time.Duration `json:"-"` // of the calls, in the order they were answered
}

// StartPolite starts one. The set-up is nil for an endpoint without a chain of
// ours: then only heads are followed.
func StartPolite(ctx context.Context, n *Node, setup *PoliteSetup) (*Polite, error) {
	p := &Polite{node: n, http: NewHTTP(n.HTTP, Dialer{}), sentAt: make(map[common.Hash]time.Time)}
	if addr, err := echoAddr(); err == nil {
		p.control = NewHTTP(addr, Dialer{})
	}
	if setup != nil {
		p.acct, p.logger = setup.Account, setup.Logger
		if err := p.acct.Resync(ctx); err != nil {
			return nil, err
		}
	}
	p.ctx, p.cancel = context.WithCancel(ctx)
	if n.WS != "" {
		if err := p.subscribe(); err != nil {
			p.cancel()
			return nil, fmt.Errorf("polite client: %w", err)
		}
	}
	p.asking.Go(p.askLoop)
	if p.acct != nil {
		p.asking.Go(p.sendLoop)
	}
	return p, nil
}

func (p *Polite) subscribe() error {
	ws, err := DialWS(p.ctx, p.node.WS, Dialer{})
	if err != nil {
		return err
	}
	kinds := make(map[string]string)
	subs := [][]any{{"newHeads"}}
	if p.acct != nil {
		subs = append(subs, []any{"logs", map[string]any{"address": p.logger}}, []any{"newPendingTransactions"})
	}
	for i, s := range subs {
		// An event may come before the next subscription's reply.
		if err := ws.Send(Call(i, "eth_subscribe", s...)); err != nil {
			return err
		}
		for replied := false; !replied; {
			rs, err := ws.Next(politeTimeout)
			if err != nil {
				return err
			}
			for _, r := range rs {
				if r.Method != "" {
					p.event(kinds, r)
				} else if r.Err != nil {
					return r.Err
				} else {
					kinds[r.Text()], replied = s[0].(string), true
				}
			}
		}
	}
	p.ws = ws
	p.mu.Lock()
	if p.lastHead.IsZero() {
		p.lastHead = time.Now()
	}
	p.mu.Unlock()
	p.wg.Add(1)
	go func() {
		defer p.wg.Done()
		for {
			rs, err := ws.Next(time.Hour)
			if err != nil {
				p.mu.Lock()
				p.wsErr = err
				p.mu.Unlock()
				return
			}
			for _, r := range rs {
				p.event(kinds, r)
			}
		}
	}()
	return nil
}

func (p *Polite) event(kinds map[string]string, r *Reply) {
	now := time.Now()
	var params struct {
		Subscription string          `json:"subscription"`
		Result       json.RawMessage `json:"result"`
		Error        *RPCError       `json:"error"`
	}
	json.Unmarshal(r.Params, &params)
	p.mu.Lock()
	defer p.mu.Unlock()
	if params.Error != nil {
		p.problemLocked("subscription dropped: %v", params.Error)
		return
	}
	switch kinds[params.Subscription] {
	case "newHeads":
		var h struct {
			Number hexutil.Uint64 `json:"number"`
			Hash   common.Hash    `json:"hash"`
			Parent common.Hash    `json:"parentHash"`
		}
		json.Unmarshal(params.Result, &h)
		if p.nheads > 0 {
			p.gap = max(p.gap, now.Sub(p.lastHead))
			if uint64(h.Number) != p.heads+1 || h.Parent != p.headHash {
				p.problemLocked("head %d after %d", h.Number, p.heads)
			}
		}
		p.nheads++
		p.heads, p.headHash, p.lastHead = uint64(h.Number), h.Hash, now
	case "newPendingTransactions":
		var hash common.Hash
		json.Unmarshal(params.Result, &hash)
		if at, own := p.sentAt[hash]; own {
			p.announced.Add(now.Sub(at))
			p.pending = append(p.pending, hash)
		}
	case "logs":
		var l struct {
			Tx common.Hash `json:"transactionHash"`
		}
		json.Unmarshal(params.Result, &l)
		p.logged = append(p.logged, l.Tx)
	}
}

func (p *Polite) problemLocked(format string, args ...any) {
	if len(p.problems) < 5 {
		p.problems = append(p.problems, fmt.Sprintf(format, args...))
	}
}

func (p *Polite) askLoop() {
	addr := common.HexToAddress("0xaa")
	if p.acct != nil {
		addr = p.acct.Addr
	}
	t := time.NewTicker(time.Second / politeRate)
	defer t.Stop()
	flight := make(chan struct{}, politeFlight)
	ask := func(c *HTTP, into []*Series, due time.Time, method string, params ...any) {
		select {
		case flight <- struct{}{}:
		default:
			p.fail(method, fmt.Errorf("%d calls unanswered already", politeFlight))
			return
		}
		p.calls.Add(1)
		go func() {
			defer p.calls.Done()
			defer func() { <-flight }()
			// Calls under way when the client stops are seen to their end.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), politeTimeout)
			defer cancel()
			r, err := c.Call(ctx, method, params...)
			took := time.Since(due)
			for _, s := range into {
				s.Add(took)
			}
			if c == p.control {
				return
			}
			if err == nil && r.Err != nil {
				err = r.Err
			}
			p.mu.Lock()
			p.asked++
			p.mu.Unlock()
			if err != nil {
				p.fail(method, err)
			}
		}()
	}
	light, other, noise := []*Series{&p.light, &p.all}, []*Series{&p.all}, []*Series{&p.noise}
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-p.node.doneOrNil():
			return
		case due := <-t.C:
			ask(p.http, light, due, "eth_blockNumber")
			ask(p.http, other, due, "eth_getBalance", addr, "latest")
			if p.control != nil {
				ask(p.control, noise, due, "eth_blockNumber")
			}
		}
	}
}

func (n *Node) doneOrNil() <-chan struct{} { return n.done }

func (p *Polite) fail(what string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed++
	if p.failure == "" {
		p.failure = fmt.Sprintf("%s: %v", what, err)
	}
}

func (p *Polite) sendLoop() {
	t := time.NewTicker(time.Second / politeTxRate)
	defer t.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-p.node.doneOrNil():
			return
		case <-t.C:
		}
		tx := p.acct.LogTx(p.logger, 1)
		p.mu.Lock()
		p.sent = append(p.sent, tx.Hash())
		p.sentAt[tx.Hash()] = time.Now()
		p.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), politeTimeout)
		err := p.acct.Send(ctx, tx)
		cancel()
		if err != nil {
			p.fail("eth_sendRawTransaction", err)
		}
	}
}

// Stop ends the client, waits up to settle for events of what was sent, and
// reports.
func (p *Polite) Stop(settle time.Duration) PoliteReport {
	p.cancel()
	p.asking.Wait() // a transaction sent later would be missed below
	p.calls.Wait()
	ctx := context.WithoutCancel(p.ctx)

	var last uint64
	if p.ws != nil && p.node.Alive() {
		if r, err := p.http.Call(ctx, "eth_blockNumber"); err == nil {
			last, _ = hexutil.DecodeUint64(r.Text())
		}
		Until(ctx, settle, func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.wsErr != nil || (p.heads >= last && len(p.pending) >= len(p.sent) && len(p.logged) >= len(p.sent)) ||
				!p.node.Alive()
		})
	}
	if p.ws != nil {
		p.mu.Lock()
		if p.wsErr != nil {
			p.problemLocked("its WebSocket ended: %v", p.wsErr)
		}
		p.mu.Unlock()
		p.ws.Abort()
	}
	p.wg.Wait()
	p.http.Close()
	if p.control != nil {
		p.control.Close()
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ws != nil {
		p.gap = max(p.gap, min(time.Since(p.lastHead), time.Hour))
		if p.heads < last && p.nheads > 0 {
			p.problemLocked("heads up to %d of %d", p.heads, last)
		}
		if p.acct != nil {
			p.compareLocked("announcements", p.pending)
			p.compareLocked("logs", p.logged)
		}
	}
	return PoliteReport{
		Latencies: p.all.Values(), // before a quantile sorts them
		Calls:     p.asked, Failed: p.failed, Failure: p.failure,
		P50: p.all.Quantile(0.5), P99: p.all.Quantile(0.99),
		LightP99: p.light.Quantile(0.99), LightMax: p.light.Max(),
		Noise: p.noise.Quantile(0.99),
		Heads: p.nheads, HeadGap: p.gap, Announced: p.announced.Quantile(0.5),
		Problems: p.problems,
	}
}

// compareLocked checks that what came is what was sent, all of it and in order.
func (p *Polite) compareLocked(kind string, got []common.Hash) {
	for i, h := range p.sent {
		if i >= len(got) {
			p.problemLocked("%d of %d %s", len(got), len(p.sent), kind)
			return
		}
		if got[i] != h {
			p.problemLocked("%s out of order at %d of %d", kind, i, len(p.sent))
			return
		}
	}
	if len(got) > len(p.sent) {
		p.problemLocked("%d %s of %d transactions", len(got), kind, len(p.sent))
	}
}
