// SPDX-License-Identifier: LGPL-3.0-or-later

package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/core/types"

	"rpcguard/tests/slowclient/rig"
)

const bigTx = 100_000 // bytes of calldata: a notification of 200 KB

// Codes that refusals carry.
const (
	codeBusy  = -32013
	codeLimit = -32005
	codeLarge = -32003
)

// WS opens a connection that is closed with the case.
func (r *Run) WS(d rig.Dialer, header ...string) *rig.WS {
	ws, err := rig.DialWS(r.Ctx, r.Node.WS, d, header...)
	r.Must(err, "attacker's WebSocket")
	r.OnClose(ws.Abort)
	return ws
}

// narrow is the dialer of an attacker whose receive buffer holds next to nothing.
func (r *Run) narrow(i int) rig.Dialer {
	d := r.Attacker(i)
	d.RcvBuf = 4096
	return d
}

// HTTP makes a client that is closed with the case.
func (r *Run) HTTP(d rig.Dialer) *rig.HTTP {
	c := rig.NewHTTP(r.Node.HTTP, d)
	r.OnClose(c.Close)
	return c
}

// Raw opens a plain connection to the HTTP server.
func (r *Run) Raw(d rig.Dialer) *rig.RawHTTP {
	c, err := rig.DialRaw(r.Ctx, r.Node.HTTP, d)
	r.Must(err, "attacker's connection")
	r.OnClose(func() { c.Close() })
	return c
}

// H2 opens an HTTP/2 connection.
func (r *Run) H2(d rig.Dialer) *rig.H2 {
	h, err := rig.DialH2(r.Ctx, r.Node.HTTP, d)
	r.Must(err, "attacker's HTTP/2 connection")
	r.OnClose(h.Close)
	return h
}

// IPC opens the node's socket.
func (r *Run) IPC() *rig.IPC {
	c, err := rig.DialIPC(r.Node)
	r.Must(err, "IPC")
	r.OnClose(func() { c.Close() })
	return c
}

// Flow is a stream of transactions with large calldata, from an account of its own.
type Flow struct {
	Sent   atomic.Int64
	cancel context.CancelFunc
	done   chan struct{}
}

// Flow starts to send rate transactions a second with size bytes of calldata.
func (r *Run) Flow(rate, size int) *Flow {
	acct := r.Account()
	ctx, cancel := context.WithCancel(r.Ctx)
	f := &Flow{cancel: cancel, done: make(chan struct{})}
	r.OnClose(f.Stop)
	go func() {
		defer close(f.done)
		// Enough at once to fill the buffers of kernel and server.
		for range 48 {
			if acct.Send(ctx, acct.BigTx(size)) == nil {
				f.Sent.Add(1)
			}
		}
		t := time.NewTicker(time.Second / time.Duration(rate))
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-r.Node.Done():
				return
			case <-t.C:
			}
			if acct.Send(ctx, acct.BigTx(size)) == nil {
				f.Sent.Add(1)
			} else if ctx.Err() == nil {
				acct.Resync(ctx)
			}
		}
	}()
	return f
}

// LargeFlow is the flow of the cases that are about large notifications: 48 at once,
// then 16 a second, of 100 KB of calldata each. Such cases set Case.Flow.
func (r *Run) LargeFlow() *Flow {
	r.Check(r.flows, "the case does not say that large transactions flow")
	return r.Flow(16, bigTx)
}

// Flowed is Arrived for a flow: enough of it was taken that whoever does not read is
// behind.
func (r *Run) Flowed(f *Flow) { r.Arrived("large transactions taken", int(f.Sent.Load()), 24) }

// Stop ends the flow.
func (f *Flow) Stop() { f.cancel(); <-f.done }

// BigBlock has blocks mined that hold k large transactions in all, and returns the
// number of the fullest and the size of its encoding with full transactions. A node
// that has one already keeps it.
func (r *Run) BigBlock(k int) (number string, size int) {
	if b := r.suite.bigBlock; b.size > 0 {
		return b.number, b.size
	}
	acct := r.Account()
	txs := make([]*types.Transaction, k)
	c := r.HTTP(rig.Dialer{})
	var batch [][]byte
	for i := range txs {
		txs[i] = acct.BigTx(bigTx)
		batch = append(batch, rig.RawTx(i, txs[i]))
		if len(batch) < 20 && i < k-1 {
			continue
		}
		_, rs, err := c.SendBatch(r.Ctx, rig.Batch(batch...))
		r.Must(err, "sending large transactions")
		for _, reply := range rs {
			if reply.Err != nil {
				r.Must(reply.Err, "sending large transactions")
			}
		}
		batch = nil
	}
	last, err := acct.Mined(r.Ctx, txs[k-1])
	r.Must(err, "the large block")
	first, err := acct.Mined(r.Ctx, txs[0])
	r.Must(err, "the large block")
	for b := first; b <= last; b++ {
		_, _, body, err := c.Post(r.Ctx, rig.Call(1, "eth_getBlockByNumber", fmt.Sprintf("0x%x", b), true))
		r.Must(err, "the large block")
		if len(body) > size {
			number, size = fmt.Sprintf("0x%x", b), len(body)
		}
	}
	r.suite.bigBlock.number, r.suite.bigBlock.size = number, size
	return number, size
}

// fullBlock has the block of the cases about large replies there before they begin: its
// transactions are not their abuse.
func fullBlock(r *Run) { r.BigBlock(60) }

// Account lends the case an account with money, until it ends.
func (r *Run) Account() *rig.Account {
	s := r.suite
	if n := len(s.accounts); n > 0 {
		a := s.accounts[n-1]
		s.accounts = s.accounts[:n-1]
		if a.Resync(r.Ctx) == nil {
			r.OnClose(func() { s.accounts = append(s.accounts, a) })
			return a
		}
	}
	a, err := rig.NewAccount(r.Ctx, r.Node)
	r.Must(err, "an account of the attacker's")
	r.OnClose(func() { s.accounts = append(s.accounts, a) })
	return a
}

// Tally counts outcomes by name.
type Tally struct {
	mu sync.Mutex
	m  map[string]int
}

// Add counts one.
func (t *Tally) Add(name string) {
	t.mu.Lock()
	if t.m == nil {
		t.m = make(map[string]int)
	}
	t.m[name]++
	t.mu.Unlock()
}

// Get tells a count.
func (t *Tally) Get(name string) int { t.mu.Lock(); defer t.mu.Unlock(); return t.m[name] }

func (t *Tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	b, _ := json.Marshal(t.m)
	return string(b)
}

// outcome names what a call came to.
func outcome(status int, reply *rig.Reply, err error) string {
	switch {
	case err != nil:
		return "error"
	case reply.Code() == codeBusy:
		return "busy"
	case reply.Code() == codeLimit:
		return "limit"
	case reply.Code() == codeLarge:
		return "large"
	case reply.Code() != 0:
		return "failed"
	case status >= 300:
		return fmt.Sprint("status ", status)
	}
	return "served"
}

// Began is Arrived for answers: it waits until at least want of the connections have
// seen the first byte of theirs.
func (r *Run) Began(conns []*rig.RawHTTP, want int) {
	var n atomic.Int64
	Parallel(len(conns), func(i int) {
		if conns[i].Begun(10 * time.Second) {
			n.Add(1)
		}
	})
	r.Arrived("answers begun", int(n.Load()), want)
}

// Unread has body sent on n connections with a small buffer and reads none of the
// answers, of which at least want must begin. The connections are shared out between
// the given number of clients; 0: each is a client's own.
func (r *Run) Unread(n, clients int, body []byte, want int) []*rig.RawHTTP {
	conns := make([]*rig.RawHTTP, n)
	for i := range conns {
		from := i
		if clients > 0 {
			from %= clients
		}
		conns[i] = r.Raw(r.narrow(from))
		r.Must(conns[i].Request(body), "asking")
	}
	r.Began(conns, want)
	return conns
}

// Metric reads one number from the metrics page; 0 when it is not there.
func (r *Run) Metric(name string) float64 {
	m, err := r.Node.Metrics()
	if err != nil {
		return 0
	}
	return m[name]
}

// MetricBecomes waits until a metric satisfies cond, and breaks the case if it
// does not within limit. Only for a guarded node; otherwise nothing is checked.
func (r *Run) MetricBecomes(name string, limit time.Duration, what string, cond func(float64) bool) {
	if !r.Guarded() {
		return
	}
	var last float64
	var present bool
	if !rig.Until(r.Ctx, limit, func() bool {
		m, err := r.Node.Metrics()
		if err != nil {
			return false
		}
		last, present = m[name]
		return present && cond(last)
	}) {
		if !present {
			r.Break("metric %s is missing", name)
		} else {
			r.Break("%s is %v, should be %s", name, last, what)
		}
	}
}

// GaugesZero waits until the guard's gauges say that nothing is held any more.
func (r *Run) GaugesZero(limit time.Duration) {
	if !r.Guarded() {
		return
	}
	var bad string
	if !rig.Until(r.Ctx, limit, func() bool {
		m, err := r.Node.Metrics()
		if err != nil {
			bad = err.Error()
			return false
		}
		bad = ""
		for _, name := range []string{"rpc_admission_executing", "rpc_admission_waiting", "rpc_body_inuse", "rpc_reply_inuse"} {
			if v, ok := m[name]; !ok || v != 0 {
				// Polite calls come and go meanwhile: what they hold is small.
				if ok && r.Polite != nil && ((strings.Contains(name, "admission") && v <= 4) || (strings.Contains(name, "inuse") && v <= 1<<18)) {
					continue
				}
				if !ok {
					bad += " " + name + " is missing"
					continue
				}
				bad += fmt.Sprintf(" %s %v", name, v)
			}
		}
		return bad == ""
	}) {
		r.Break("not back to zero:%s", bad)
	}
}

// Books is the admission gate's account.
type Books struct{ Arrived, Served, Failed, Refused, Cancelled float64 }

// Books reads them.
func (r *Run) Books() Books {
	m, err := r.Node.Metrics()
	r.Must(err, "metrics page")
	g := func(n string) float64 { return m["rpc_admission_"+n] }
	return Books{g("arrived"), g("served"), g("failed"), g("refused"), g("cancelled")}
}

// BooksNow are the books after the page has been brought up to date, which is once a
// second: what was called before, to see whether the node is up, is in them.
func (r *Run) BooksNow() Books {
	r.For(pageAge)
	return r.Books()
}

// pageAge is how old what the metrics page says may be, and some more.
const pageAge = 1200 * time.Millisecond

// Sub is the difference.
func (b Books) Sub(o Books) Books {
	return Books{b.Arrived - o.Arrived, b.Served - o.Served, b.Failed - o.Failed, b.Refused - o.Refused, b.Cancelled - o.Cancelled}
}

// Balanced reports the identity that holds when nothing is under way.
func (b Books) Balanced() bool { return b.Arrived == b.Served+b.Failed+b.Refused+b.Cancelled }
