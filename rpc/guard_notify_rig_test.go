// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
)

// feedService is a service whose subscribers all get what the test publishes, one
// after another in the publisher's time, as the event loop of the filters does it.
type feedService struct {
	mu        sync.Mutex
	notifiers map[ID]*Notifier
	installed chan ID
	gone      chan ID
	release   chan struct{} // lets Slow return
	flood     int           // events sent before the subscribe call returns
}

func newFeedService() *feedService {
	return &feedService{
		notifiers: make(map[ID]*Notifier),
		installed: make(chan ID, 5000),
		gone:      make(chan ID, 5000),
		release:   make(chan struct{}),
	}
}

// Feed is the subscription.
func (f *feedService) Feed(ctx context.Context) (*Subscription, error) {
	n, ok := NotifierFromContext(ctx)
	if !ok {
		return nil, ErrNotificationsUnsupported
	}
	sub := n.CreateSubscription()
	for range f.flood {
		n.Notify(sub.ID, strings.Repeat("f", 1000))
	}
	f.mu.Lock()
	f.notifiers[sub.ID] = n
	f.mu.Unlock()
	go func() {
		<-sub.Err()
		f.mu.Lock()
		delete(f.notifiers, sub.ID)
		f.mu.Unlock()
		f.gone <- sub.ID
	}()
	f.installed <- sub.ID
	return sub, nil
}

// Broken is a subscription that is made and then fails.
func (f *feedService) Broken(ctx context.Context) (*Subscription, error) {
	n, _ := NotifierFromContext(ctx)
	sub := n.CreateSubscription()
	go func() { <-sub.Err(); f.gone <- sub.ID }()
	return nil, errors.New("broken")
}

// Slow is a call that returns when the test says so.
func (f *feedService) Slow() { <-f.release }

// publish hands v to every subscriber and returns how long the slowest took.
func (f *feedService) publish(v any) (longest time.Duration) {
	f.mu.Lock()
	subs := make(map[ID]*Notifier)
	for id, n := range f.notifiers {
		subs[id] = n
	}
	f.mu.Unlock()
	for id, n := range subs {
		start := time.Now()
		n.Notify(id, v)
		longest = max(longest, time.Since(start))
	}
	return longest
}

type feedServer struct {
	*feedService
	guard *Guard
	srv   *Server
	url   string
}

func testGuardConfig() GuardConfig {
	cfg := DefaultGuardConfig
	cfg.Client.Local = true
	return cfg
}

// newFeedServer serves a feed over WebSocket. The zero config is stock.
func newFeedServer(t *testing.T, cfg GuardConfig) *feedServer {
	t.Helper()
	g, err := NewGuard(cfg, GuardEnv{Procs: 2, HTTPBodyLimit: defaultBodyLimit})
	require.NoError(t, err)
	f := &feedServer{feedService: newFeedService(), guard: g, srv: newPlainServer()}
	f.srv.SetGuard(g)
	require.NoError(t, f.srv.RegisterName("eth", f.feedService))
	hs := httptest.NewServer(anyOrigin(f.srv))
	f.url = "ws:" + strings.TrimPrefix(hs.URL, "http:")
	t.Cleanup(func() {
		f.srv.Stop()
		hs.Close()
	})
	return f
}

// rawClient is a WebSocket client that reads when the test tells it to.
type rawClient struct {
	t *testing.T
	*websocket.Conn
	id int
}

func (f *feedServer) dialRaw(t *testing.T, rcvbuf int) *rawClient {
	t.Helper()
	dialer := websocket.Dialer{NetDial: func(network, addr string) (net.Conn, error) {
		conn, err := net.Dial(network, addr)
		if err == nil && rcvbuf > 0 {
			conn.(*net.TCPConn).SetReadBuffer(rcvbuf)
		}
		return conn, err
	}}
	conn, _, err := dialer.Dial(f.url, nil)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return &rawClient{t: t, Conn: conn}
}

func (c *rawClient) send(method string, params ...any) {
	c.id++
	if params == nil {
		params = []any{}
	}
	require.NoError(c.t, c.WriteJSON(map[string]any{"jsonrpc": "2.0", "id": c.id, "method": method, "params": params}))
}

type rawMessage struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Result json.RawMessage `json:"result"`
	Error  *jsonError      `json:"error"`
	Params struct {
		Subscription ID              `json:"subscription"`
		Result       json.RawMessage `json:"result"`
		Error        *jsonError      `json:"error"`
	} `json:"params"`
}

func (c *rawClient) read() rawMessage {
	c.t.Helper()
	var msg rawMessage
	c.SetReadDeadline(time.Now().Add(20 * time.Second))
	require.NoError(c.t, c.ReadJSON(&msg))
	return msg
}

// call sends and reads up to the reply; notifications in between are returned.
func (c *rawClient) call(method string, params ...any) (reply rawMessage, before []rawMessage) {
	c.t.Helper()
	c.send(method, params...)
	for {
		msg := c.read()
		if msg.ID == c.id {
			return msg, before
		}
		before = append(before, msg)
	}
}

func (c *rawClient) subscribe() ID {
	c.t.Helper()
	reply, _ := c.call("eth_subscribe", "feed")
	require.Nil(c.t, reply.Error)
	var id ID
	require.NoError(c.t, json.Unmarshal(reply.Result, &id))
	return id
}

func await[T any](t *testing.T, ch <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(20 * time.Second):
		t.Fatal("time-out: " + what)
	}
	return v
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatal("time-out: " + what)
		}
		runtime.Gosched()
		<-time.After(time.Millisecond)
	}
}
