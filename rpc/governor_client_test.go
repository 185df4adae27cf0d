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
	"testing/synctest"
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

// Every way out of a client passes the governor, and nothing else does.
func TestGovernorEveryCallPays(t *testing.T) {
	g := fastGovernor(t)
	var e stubEndpoint
	c := e.dial(t, WithGovernor(g))

	var result string
	require.NoError(t, c.Call(&result, "test_one"))
	require.Equal(t, "test_one", result)
	require.EqualValues(t, 1, g.Stats().Foreground.Tokens)
	require.NoError(t, c.BatchCall(make([]BatchElem, 7)))
	require.EqualValues(t, 8, g.Stats().Foreground.Tokens)
	require.ErrorIs(t, c.Notify(context.Background(), "test_notify"), io.EOF) // as upstream, for an empty answer
	require.EqualValues(t, 9, g.Stats().Foreground.Tokens)

	require.Error(t, c.Call(result, "test_notAPointer"))
	require.Error(t, c.BatchCall(nil))
	_, err := c.Subscribe(context.Background(), "eth", make(chan int))
	require.ErrorIs(t, err, ErrNotificationsUnsupported)
	require.EqualValues(t, 3, g.Stats().Foreground.Arrived, "what is never sent costs nothing")
	require.Equal(t, 9, e.calls)
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

func TestGovernorStreamClient(t *testing.T) {
	g := fastGovernor(t)
	c := governedStream(t, nil, WithGovernor(g))
	var s string
	require.NoError(t, c.Call(&s, "test_echo", "x"))
	beats := make(chan int, 100)
	sub, err := c.Subscribe(context.Background(), "test", beats, "beat")
	require.NoError(t, err)
	require.EqualValues(t, 2, g.Stats().Foreground.Tokens)
	<-beats
	sub.Unsubscribe()
	require.EqualValues(t, 2, g.Stats().Foreground.Arrived, "unsubscribing waits for nothing")
	require.InDelta(t, 1e9, g.Stats().Tokens, 10)
}

// A lost connection is dialled, and the message sent again, within one call: the call
// pays two.
func TestGovernorReconnectPays(t *testing.T) {
	g, _ := simGovernor(t, GovernorConfig{Rate: 1e-6, Burst: 10})
	var conn net.Conn
	c := governedStream(t, func(c net.Conn) net.Conn { conn = c; return c }, WithGovernor(g))
	var s string
	require.NoError(t, c.Call(&s, "test_echo", "x"))
	require.InDelta(t, 9, g.Stats().Tokens, 1e-3)
	conn.Close()
	require.NoError(t, c.Call(&s, "test_echo", "y"))
	require.InDelta(t, 7, g.Stats().Tokens, 1e-3)
}

// An unsubscription that is refused leaves a subscription at the server.
func TestGovernorNeverRefusesUnsubscribe(t *testing.T) {
	g, _ := simGovernor(t, GovernorConfig{Rate: 1, Burst: 1})
	c := governedStream(t, nil, WithGovernor(g))
	sub, err := c.Subscribe(context.Background(), "test", make(chan int, 100), "beat")
	require.NoError(t, err)
	require.ErrorIs(t, c.Call(nil, "test_echo", "x"), ErrLocalCapacity)
	sub.Unsubscribe()
	require.InDelta(t, -1, g.Stats().Tokens, 1e-3, "charged all the same")
}

// A client without a governor is upstream's, errors included.
func TestGovernorNilIsUpstream(t *testing.T) {
	e := stubEndpoint{answer: func(int, stubRequest) stubAnswer { return refuseHTTP(429, "1") }}
	for _, options := range [][]ClientOption{
		nil, {WithGovernor(nil)}, {WithRetries(5), WithMergedReads(), WithGovernor(nil)},
	} {
		err := e.dial(t, options...).Call(nil, "eth_blockNumber")
		httpErr, ok := err.(HTTPError)
		require.True(t, ok, "%T", err)
		require.Equal(t, 429, httpErr.StatusCode)
	}
	require.Equal(t, 3, e.calls)
}

func TestGovernorDecodesErrorOfHTTPBody(t *testing.T) {
	e := stubEndpoint{answer: func(n int, r stubRequest) stubAnswer {
		return []stubAnswer{
			{status: 503, body: `{"jsonrpc":"2.0","id":null,"error":{"code":-32005,"message":"budget","data":{"limit":5}}}`},
			{status: 502, body: `<html>bad gateway</html>`},
		}[n]
	}}
	c := e.dial(t, WithGovernor(fastGovernor(t)))

	err := c.Call(nil, "eth_blockNumber")
	var (
		rpcErr  Error
		dataErr DataError
		httpErr HTTPError
	)
	require.ErrorAs(t, err, &rpcErr)
	require.Equal(t, -32005, rpcErr.ErrorCode())
	require.ErrorAs(t, err, &dataErr)
	require.Equal(t, map[string]interface{}{"limit": 5.0}, dataErr.ErrorData())
	require.ErrorAs(t, err, &httpErr)
	require.Equal(t, 503, httpErr.StatusCode)
	require.Equal(t, "503 Service Unavailable: budget", err.Error())

	err = c.Call(nil, "eth_blockNumber")
	require.ErrorAs(t, err, &httpErr)
	require.False(t, errors.As(err, &rpcErr))
}

// Whatever says "too much" pauses the governor, in a batch too; other errors do not.
func TestGovernorOverloadAnswersPause(t *testing.T) {
	call := func(c *Client) { c.Call(nil, "eth_blockNumber") }
	batch := func(c *Client) { c.BatchCall([]BatchElem{{Method: "eth_chainId"}, {Method: "eth_chainId"}}) }
	const other = `"error":{"code":-32000,"message":"x"}`
	for name, tc := range map[string]struct {
		answer stubAnswer
		send   func(*Client)
		want   time.Duration
	}{
		"429, Retry-After":     {refuseHTTP(429, "7"), call, 7 * time.Second},
		"503, Retry-After":     {refuseHTTP(503, "7"), call, 7 * time.Second},
		"503, page":            {stubAnswer{status: 503, body: "busy"}, call, 750 * time.Millisecond},
		"429, batch":           {refuseHTTP(429, "7"), batch, 7 * time.Second},
		"-32013":               {stubAnswer{bodies: []string{queueFullError}}, call, 750 * time.Millisecond},
		"-32005, Retry-After":  {stubAnswer{header: http.Header{"Retry-After": {"7"}}, bodies: []string{`"error":{"code":-32005,"message":"x"}`}}, call, 7 * time.Second},
		"-32013 of an element": {stubAnswer{bodies: []string{other, queueFullError}}, batch, 750 * time.Millisecond},
		"notification":         {refuseHTTP(429, "7"), func(c *Client) { c.Notify(context.Background(), "test_x") }, 7 * time.Second},
		"-32000":               {stubAnswer{bodies: []string{other}}, call, 0},
		"502":                  {stubAnswer{status: 502, body: "x"}, call, 0},
		"400, Retry-After":     {refuseHTTPBody(400, "x"), call, 0},
	} {
		g, _ := simGovernor(t, GovernorConfig{Rate: 1000, Burst: 1000, Backoff: time.Second})
		e := stubEndpoint{answer: func(int, stubRequest) stubAnswer { return tc.answer }}
		tc.send(e.dial(t, WithGovernor(g)))
		require.Equal(t, tc.want, g.Stats().PauseLeft, name)
	}
}

func refuseHTTPBody(status int, body string) stubAnswer {
	a := refuseHTTP(status, "7")
	a.body = body
	return a
}

func TestGovernorRetriesOnlyWhatIsSafe(t *testing.T) {
	for method, want := range map[string]int{
		"eth_blockNumber":        4,
		"eth_getFilterChanges":   1, // takes the changes away
		"eth_newFilter":          1,
		"eth_sendTransaction":    1,
		"eth_sendRawTransaction": 1,
		"personal_sign":          1,
		"my_lookup":              4, // declared
	} {
		for _, a := range []stubAnswer{refuseHTTP(429, ""), {status: 502, body: "x"}, {err: io.ErrUnexpectedEOF}, {bodies: []string{queueFullError}}} {
			g := fastGovernor(t)
			e := stubEndpoint{answer: func(int, stubRequest) stubAnswer { return a }}
			err := e.dial(t, WithGovernor(g), WithRetries(3), WithRepeatableMethods("my_lookup")).Call(nil, method)
			require.Error(t, err)
			require.Equal(t, want, e.calls, "%s %+v", method, a)
			require.EqualValues(t, want, g.Stats().Foreground.Tokens, "each attempt pays")
			require.Equal(t, uint64(want-1), g.Stats().Retries)
		}
	}
	// What the caller got wrong is wrong the second time.
	e := stubEndpoint{answer: func(int, stubRequest) stubAnswer {
		return stubAnswer{bodies: []string{`"error":{"code":-32602,"message":"x"}`}}
	}}
	require.Error(t, e.dial(t, WithGovernor(fastGovernor(t)), WithRetries(3)).Call(nil, "eth_call"))
	require.Equal(t, 1, e.calls)
}

// Of a batch, the refused elements that are safe to repeat go again, and pay again.
func TestGovernorRetriesRefusedElements(t *testing.T) {
	g := fastGovernor(t)
	e := stubEndpoint{answer: func(n int, r stubRequest) stubAnswer {
		switch n {
		case 0:
			return stubAnswer{bodies: []string{`"result":"a"`, queueFullError, queueFullError, queueFullError}}
		case 1:
			return stubAnswer{bodies: []string{queueFullError, `"result":"d"`}}
		}
		return stubAnswer{bodies: []string{`"result":"b"`}}
	}}
	results := make([]string, 4)
	batch := []BatchElem{
		{Method: "eth_chainId", Result: &results[0]},
		{Method: "eth_blockNumber", Result: &results[1]},
		{Method: "eth_sendRawTransaction", Result: &results[2]},
		{Method: "eth_gasPrice", Result: &results[3]},
	}
	require.NoError(t, e.dial(t, WithGovernor(g), WithRetries(5)).BatchCall(batch))
	require.Equal(t, []string{"a", "b", "", "d"}, results)
	require.NoError(t, batch[1].Error)
	require.True(t, isOverload(batch[2].Error))
	require.NoError(t, batch[3].Error)
	require.Equal(t, 3, len(e.requests))
	require.EqualValues(t, 4+2+1, g.Stats().Foreground.Tokens)
}

// A limiter for each endpoint would multiply the budget, and a refusal made here would
// send the call to the next endpoint, where it is as unwelcome.
func TestGovernorOneBudgetForAllEndpoints(t *testing.T) {
	dead := stubAnswer{err: errors.New("dial: refused")}
	first := &stubEndpoint{answer: func(int, stubRequest) stubAnswer { return dead }}
	second := &stubEndpoint{answer: func(int, stubRequest) stubAnswer { return dead }}
	third := new(stubEndpoint)
	own := fastGovernor(t)
	g, _ := simGovernor(t, GovernorConfig{Rate: 1e-6, Burst: 10})
	c := first.dial(t, WithGovernor(g), WithFallbacks(second.dial(t, WithGovernor(own)), third.dial(t)))
	for i := 0; i < 3; i++ {
		require.NoError(t, c.Call(nil, "eth_blockNumber"))
	}
	require.Equal(t, []int{3, 3, 3}, []int{first.calls, second.calls, third.calls})
	require.InDelta(t, 1, g.Stats().Tokens, 1e-3)
	require.EqualValues(t, 6, g.Stats().Fallbacks)
	require.Zero(t, own.Stats().Foreground.Arrived)

	require.Error(t, c.Call(nil, "eth_sendTransaction")) // one attempt, the last token
	err := c.Call(nil, "eth_blockNumber")
	require.ErrorIs(t, err, ErrLocalCapacity)
	require.Equal(t, []int{4, 3, 3}, []int{first.calls, second.calls, third.calls}, "local refusal triggered a fall-back")
}

func TestGovernorStatusReadsAreBackground(t *testing.T) {
	g := fastGovernor(t)
	var e stubEndpoint
	c := e.dial(t, WithGovernor(g))
	ctx := context.Background()
	for method := range statusMethods {
		require.NoError(t, c.CallContext(ctx, nil, method))
	}
	c.SupportedModules()
	require.EqualValues(t, len(statusMethods)+1, g.Stats().Background.Admitted)
	require.NoError(t, c.BatchCallContext(ctx, []BatchElem{{Method: "eth_syncing"}, {Method: "net_peerCount"}}))
	require.EqualValues(t, len(statusMethods)+3, g.Stats().Background.Tokens)
	require.Zero(t, g.Stats().Foreground.Arrived)

	require.NoError(t, c.CallContext(ContextWithForeground(ctx), nil, "eth_syncing"))
	require.NoError(t, c.BatchCallContext(ctx, []BatchElem{{Method: "eth_syncing"}, {Method: "eth_chainId"}}))
	require.EqualValues(t, 3, g.Stats().Foreground.Tokens)
	require.NoError(t, c.CallContext(ContextWithBackground(ctx), nil, "eth_blockNumber"))
	require.EqualValues(t, len(statusMethods)+4, g.Stats().Background.Tokens)
}

func TestGovernorMergesIdenticalReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := bubbleGovernor(t, GovernorConfig{Rate: 1000, Burst: 100, MaxQueue: 100})
		e := &stubEndpoint{answer: func(int, stubRequest) stubAnswer { time.Sleep(time.Second); return stubAnswer{} }}
		c := e.dial(t, WithGovernor(g), WithMergedReads())
		var wg sync.WaitGroup
		call := func(ctx context.Context, method string, args ...interface{}) {
			wg.Add(1)
			go func() {
				defer wg.Done()
				var s string
				if err := c.CallContext(ctx, &s, method, args...); err != nil || s != method {
					t.Errorf("%s: %q, %v", method, s, err)
				}
			}()
		}
		fg := context.Background()
		for i := 0; i < 50; i++ {
			call(fg, "eth_getBalance", "0x1", "latest")
		}
		call(fg, "eth_getBalance", "0x2", "latest") // other parameters
		call(fg, "eth_sendRawTransaction", "0x1")   // not a read
		call(fg, "eth_sendRawTransaction", "0x1")
		call(NewContextWithHeaders(fg, http.Header{"X-Token": {"1"}}), "eth_getBalance", "0x1", "latest")
		wg.Wait()
		require.Equal(t, 5, e.calls)
		require.EqualValues(t, 5, g.Stats().Foreground.Tokens)
		require.EqualValues(t, 49, g.Stats().Merged)
		call(fg, "eth_getBalance", "0x1", "latest")
		wg.Wait()
		require.Equal(t, 6, e.calls, "an answer is not kept")
	})
}

func bubbleGovernor(t testing.TB, cfg GovernorConfig) *Governor {
	t.Helper()
	cfg.Clock = bubbleClock{}
	g, err := NewGovernor(cfg)
	require.NoError(t, err)
	t.Cleanup(g.Close)
	return g
}

// Joining a background flight, the foreground would wait in the background's queue.
func TestGovernorForegroundNeverWaitsOnBackgroundFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := bubbleGovernor(t, GovernorConfig{Rate: 1, Burst: 4, ForegroundReserve: 75, MaxQueue: 100})
		e := new(stubEndpoint)
		c := e.dial(t, WithGovernor(g), WithMergedReads())
		bg := ContextWithBackground(context.Background())
		require.NoError(t, c.CallContext(bg, nil, "eth_blockNumber"))
		var wg sync.WaitGroup
		for i := 0; i < 10; i++ { // one flight, waiting
			wg.Add(1)
			go func() { defer wg.Done(); c.CallContext(bg, nil, "eth_blockNumber") }()
		}
		synctest.Wait()
		start := time.Now()
		require.NoError(t, c.CallContext(context.Background(), nil, "eth_blockNumber"))
		require.Zero(t, time.Since(start))
		wg.Wait()
		require.Equal(t, 3, e.calls)
	})
}

// A flight belongs to all its callers: one that leaves does not fail the rest, the last
// one that leaves ends it.
func TestGovernorFlightOutlivesItsFirstCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := bubbleGovernor(t, GovernorConfig{Rate: 1000, Burst: 100, MaxQueue: 100})
		var aborted atomic.Int64
		e := &stubEndpoint{answer: func(_ int, r stubRequest) stubAnswer {
			select {
			case <-r.ctx.Done():
				aborted.Add(1)
				return stubAnswer{err: r.ctx.Err()}
			case <-time.After(10 * time.Second):
				return stubAnswer{}
			}
		}}
		c := e.dial(t, WithGovernor(g), WithMergedReads(), WithRetries(3))
		call := func(timeout time.Duration) chan error {
			done := make(chan error, 1)
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), timeout)
				defer cancel()
				done <- c.CallContext(ctx, nil, "eth_blockNumber")
			}()
			synctest.Wait()
			return done
		}
		first, second := call(time.Second), call(time.Minute)
		require.ErrorIs(t, <-first, context.DeadlineExceeded)
		require.NoError(t, <-second)
		require.Zero(t, aborted.Load())

		first, second = call(time.Second), call(2*time.Second)
		require.ErrorIs(t, <-first, context.DeadlineExceeded)
		require.ErrorIs(t, <-second, context.DeadlineExceeded)
		synctest.Wait()
		require.EqualValues(t, 1, aborted.Load())
		require.Equal(t, 2, e.calls, "and is not tried again")
	})
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

// Calls that wait until just before their deadline would be cut off while they are
// written, and the connection with all its subscriptions would go with them.
func TestGovernorWaitingNeverCutsAWrite(t *testing.T) {
	streamBubble(t, func(t *testing.T) {
		g := bubbleGovernor(t, GovernorConfig{Rate: 10, Burst: 1, MaxQueue: 1000})
		c := governedStream(t, func(conn net.Conn) net.Conn { return &governorSlowConn{Conn: conn, pace: 10 * time.Millisecond} }, WithGovernor(g))
		beats := make(chan int, 1000)
		sub, err := c.Subscribe(context.Background(), "test", beats, "beat")
		require.NoError(t, err)

		var wg sync.WaitGroup
		var late, served atomic.Int64
		for i := 0; i < 200; i++ {
			wg.Add(1)
			go func() {
				defer wg.Done()
				ctx, cancel := context.WithTimeout(context.Background(), time.Second+time.Duration(i)*time.Millisecond)
				defer cancel()
				switch err := c.CallContext(ctx, nil, "test_echo", "x"); {
				case err == nil:
					served.Add(1)
				case errors.Is(err, context.DeadlineExceeded):
					late.Add(1)
				default:
					t.Error(err)
				}
			}()
		}
		wg.Wait()
		require.NotZero(t, served.Load())
		require.NotZero(t, late.Load())
		select {
		case err := <-sub.Err():
			t.Fatalf("subscription lost: %v", err)
		case <-beats:
		}
		checkGovernorBooks(t, g)
	})
}

// waitForCallers returns once n calls of the foreground wait for a token.
func waitForCallers(g *Governor, n int) {
	for g.Stats().Foreground.Waiting < n {
		time.Sleep(time.Millisecond)
	}
}

// Closing a client ends the waiting of its calls, as it ends all else they wait for.
func TestGovernorClientCloseEndsWaiting(t *testing.T) {
	streamBubble(t, func(t *testing.T) {
		g := bubbleGovernor(t, GovernorConfig{Rate: 1, Burst: 1, MaxQueue: 10})
		c, other := governedStream(t, nil, WithGovernor(g)), governedStream(t, nil, WithGovernor(g))
		require.NoError(t, c.Call(nil, "test_echo", "x"))
		errs, rest := make(chan error, 3), make(chan error, 1)
		for i := 0; i < 3; i++ {
			go func() { errs <- c.Call(nil, "test_echo", "x") }()
		}
		waitForCallers(g, 3)
		go func() { rest <- other.Call(nil, "test_echo", "x") }()
		waitForCallers(g, 4)
		c.Close()
		for i := 0; i < 3; i++ {
			require.ErrorIs(t, <-errs, ErrClientQuit)
		}
		require.NoError(t, <-rest, "another client's calls go on")
		require.EqualValues(t, 3, g.Stats().Foreground.Cancelled)
		checkGovernorBooks(t, g)
	})
}

// An endpoint that is down holds up the calls that found it so, and no others.
func TestGovernorDeadEndpointPausesNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := bubbleGovernor(t, GovernorConfig{Rate: 1000, Burst: 100, MaxQueue: 100, Backoff: time.Second})
		dead := &stubEndpoint{answer: func(n int, _ stubRequest) stubAnswer {
			if n < 3 {
				return stubAnswer{err: errors.New("refused")}
			}
			return stubAnswer{}
		}}
		alive := new(stubEndpoint)
		c, d := dead.dial(t, WithGovernor(g), WithRetries(3)), alive.dial(t, WithGovernor(g))
		done := make(chan error, 1)
		start := time.Now()
		go func() { done <- c.Call(nil, "eth_blockNumber") }()
		synctest.Wait()
		require.NoError(t, d.Call(nil, "eth_blockNumber"))
		require.Zero(t, time.Since(start))
		require.NoError(t, <-done)
		waited := time.Since(start)
		require.GreaterOrEqual(t, waited, 3500*time.Millisecond) // half of 1+2+4 s at least
		require.LessOrEqual(t, waited, 7*time.Second)
		require.Zero(t, g.Stats().Pauses)
	})
}

func TestGovernorRetryAfter(t *testing.T) {
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"":                              0,
		"0":                             0,
		" 12 ":                          12 * time.Second,
		"-1":                            0,
		"1.5":                           0,
		"soon":                          0,
		"99999999999999999999":          (1<<31 - 1) * time.Second,
		"Wed, 02 Jan 2030 03:04:35 GMT": 30 * time.Second,
		"Wed, 02 Jan 2030 03:03:35 GMT": 0,
	} {
		require.Equal(t, want, parseRetryAfter(http.Header{"Retry-After": {value}}, now), value)
	}
	// The server's clock counts, not ours.
	h := http.Header{"Retry-After": {"Wed, 02 Jan 2030 03:04:35 GMT"}, "Date": {"Wed, 02 Jan 2030 03:04:33 GMT"}}
	require.Equal(t, 2*time.Second, parseRetryAfter(h, now.Add(-time.Hour)))
}

func FuzzGovernorAnswer(f *testing.F) {
	f.Add("1", "Wed, 02 Jan 2030 03:04:33 GMT", []byte(`{"error":{"code":-32005,"message":"x"}}`))
	f.Add("Wed, 02 Jan 2030 03:04:35 GMT", "", []byte(`[]`))
	f.Fuzz(func(t *testing.T, retryAfter, date string, body []byte) {
		d := parseRetryAfter(http.Header{"Retry-After": {retryAfter}, "Date": {date}}, time.Unix(1e9, 0))
		if d < 0 {
			t.Fatalf("negative pause %v", d)
		}
		in := HTTPError{StatusCode: 429, Status: "429", Body: body}
		var out HTTPError
		if err := withCallError(in); !errors.As(err, &out) || !bytes.Equal(out.Body, body) {
			t.Fatalf("HTTPError lost: %v", err)
		}
	})
}
