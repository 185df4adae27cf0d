// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

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
