// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
	"github.com/stretchr/testify/require"
)

// bubbleClock is a mclock.Clock whose time is that of package time, which testing/synctest
// simulates (mclock.System reads the runtime's clock past it).
type bubbleClock struct{ mclock.System }

var bubbleEpoch = time.Unix(0, 0)

func (bubbleClock) Now() mclock.AbsTime { return mclock.AbsTime(time.Since(bubbleEpoch)) }

// stubEndpoint is an HTTP endpoint without a network: it counts what reaches it and
// answers with answer, or with the method's name as the result of each call.
type stubEndpoint struct {
	answer func(n int, r stubRequest) stubAnswer // n counts from 0

	mu       sync.Mutex
	requests []stubRequest
	calls    int
}

type stubCall struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
}

type stubRequest struct {
	at    time.Time
	calls []stubCall
	batch bool
	ctx   context.Context
}

type stubAnswer struct {
	err    error
	status int
	header http.Header
	body   string // of a single answer, or for each call of a batch
	bodies []string
}

func (e *stubEndpoint) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	r := stubRequest{at: time.Now(), ctx: req.Context()}
	if r.batch = body[0] == '['; r.batch {
		err = json.Unmarshal(body, &r.calls)
	} else {
		r.calls = make([]stubCall, 1)
		err = json.Unmarshal(body, &r.calls[0])
	}
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	n := len(e.requests)
	e.requests = append(e.requests, r)
	e.calls += len(r.calls)
	e.mu.Unlock()

	var a stubAnswer
	if e.answer != nil {
		a = e.answer(n, r)
	}
	if a.err != nil {
		return nil, a.err
	}
	if a.status == 0 {
		a.status = http.StatusOK
	}
	if a.header == nil {
		a.header = make(http.Header)
	}
	if a.body == "" && len(r.calls) > 0 && r.calls[0].ID != nil {
		var elems []string
		for i, call := range r.calls {
			body := fmt.Sprintf(`"result":%q`, call.Method)
			if a.bodies != nil {
				body = a.bodies[i]
			}
			elems = append(elems, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, call.ID, body))
		}
		a.body = elems[0]
		if r.batch {
			a.body = "[" + elems[0]
			for _, elem := range elems[1:] {
				a.body += "," + elem
			}
			a.body += "]"
		}
	}
	return &http.Response{
		Status:     fmt.Sprintf("%d %s", a.status, http.StatusText(a.status)),
		StatusCode: a.status,
		Header:     a.header,
		Body:       io.NopCloser(bytes.NewReader([]byte(a.body))),
		Request:    req,
	}, nil
}

func (e *stubEndpoint) dial(t testing.TB, options ...ClientOption) *Client {
	t.Helper()
	options = append(options, WithHTTPClient(&http.Client{Transport: e}))
	c, err := DialOptions(context.Background(), "http://stub.invalid", options...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func fastGovernor(t testing.TB) *Governor {
	t.Helper()
	g, err := NewGovernor(GovernorConfig{Rate: 1e9, Burst: 1e9, MaxQueue: 100, Backoff: time.Millisecond, MaxPause: 2 * time.Millisecond})
	require.NoError(t, err)
	return g
}

const queueFullError = `"error":{"code":-32013,"message":"Request queue is full"}`

func refuseHTTP(status int, retryAfter string) stubAnswer {
	h := make(http.Header)
	if retryAfter != "" {
		h.Set("Retry-After", retryAfter)
	}
	return stubAnswer{status: status, header: h, body: `{"jsonrpc":"2.0","id":null,` + queueFullError + `}`}
}

type governorTestService struct{}

func (governorTestService) Echo(s string) string { return s }

func (governorTestService) Beat(ctx context.Context) (*Subscription, error) {
	notifier, _ := NotifierFromContext(ctx)
	sub := notifier.CreateSubscription()
	go func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-tick.C:
				notifier.Notify(sub.ID, i)
			case <-sub.Err():
				return
			}
		}
	}()
	return sub, nil
}

// governedStream returns a client of a server behind a pipe. wrap gets the client's end of
// each connection made.
func governedStream(t testing.TB, wrap func(net.Conn) net.Conn, options ...ClientOption) *Client {
	t.Helper()
	srv := newPlainServer()
	require.NoError(t, srv.RegisterName("test", governorTestService{}))
	cfg := new(clientConfig)
	for _, opt := range options {
		opt.applyOption(cfg)
	}
	c, err := newClient(context.Background(), cfg, func(context.Context) (ServerCodec, error) {
		here, there := net.Pipe()
		go srv.ServeCodec(NewCodec(there), 0)
		if wrap != nil {
			here = wrap(here)
		}
		return NewCodec(here), nil
	})
	require.NoError(t, err)
	t.Cleanup(func() { c.Close(); srv.Stop() })
	return c
}

func refuseHTTPBody(status int, body string) stubAnswer {
	a := refuseHTTP(status, "7")
	a.body = body
	return a
}

func bubbleGovernor(t testing.TB, cfg GovernorConfig) *Governor {
	t.Helper()
	cfg.Clock = bubbleClock{}
	g, err := NewGovernor(cfg)
	require.NoError(t, err)
	t.Cleanup(g.Close)
	return g
}

// governorSlowConn needs a while for each write, and gives up at the deadline, half-way.
type governorSlowConn struct {
	net.Conn
	pace     time.Duration
	deadline atomic.Pointer[time.Time]
}

func (c *governorSlowConn) SetWriteDeadline(t time.Time) error {
	c.deadline.Store(&t)
	return c.Conn.SetWriteDeadline(t)
}

func (c *governorSlowConn) Write(b []byte) (int, error) {
	if d := c.deadline.Load(); d != nil && time.Until(*d) < c.pace {
		time.Sleep(time.Until(*d))
		n, _ := c.Conn.Write(b[:len(b)/2])
		c.Conn.Close()
		return n, errors.New("write cut off by its deadline")
	}
	time.Sleep(c.pace)
	return c.Conn.Write(b)
}

// waitForCallers returns once n calls of the foreground wait for a token.
func waitForCallers(g *Governor, n int) {
	for g.Stats().Foreground.Waiting < n {
		time.Sleep(time.Millisecond)
	}
}
