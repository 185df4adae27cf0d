// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// TestGuardSlowSubscriberHoldsUpNobody is the reason for all of this. Both clients
// are installed before the first event, and what is measured is the latency of each
// event while they are sent, so that stock fails it in seconds and not by luck.
func TestGuardSlowSubscriberHoldsUpNobody(t *testing.T) {
	longest, latest, gone := runSlowSubscriber(t, testGuardConfig())
	require.Less(t, longest, 500*time.Millisecond, "a producer waited")
	require.Less(t, latest, time.Second, "the healthy subscriber waited")
	require.True(t, gone, "the slow subscription is still there")
}

// TestGuardSlowSubscriberHoldsUpStock shows that the test above can fail.
func TestGuardSlowSubscriberHoldsUpStock(t *testing.T) {
	if guardStandIn != nil {
		t.Skip("a guard stands in for none")
	}
	longest, _, gone := runSlowSubscriber(t, GuardConfig{})
	require.Greater(t, longest, time.Second)
	require.False(t, gone)
}

func runSlowSubscriber(t *testing.T, cfg GuardConfig) (longest, latest time.Duration, gone bool) {
	f := newFeedServer(t, cfg)
	slow := f.dialRaw(t, 4096)
	slowID := slow.subscribe()

	client, err := Dial(f.url)
	require.NoError(t, err)
	defer client.Close()
	events := make(chan string, 10000)
	sub, err := client.EthSubscribe(context.Background(), events, "feed")
	require.NoError(t, err)
	for range 2 {
		await(t, f.installed, "subscription")
	}
	padding := strings.Repeat("x", 100<<10)
	for i := range 300 {
		sent := time.Now()
		published := make(chan time.Duration, 1)
		go func() { published <- f.publish(fmt.Sprint(i, " ", padding)) }()
		select {
		case d := <-published:
			longest = max(longest, d)
		case <-time.After(2 * time.Second):
			slow.Close() // frees the producer, late
			return 2 * time.Second, 0, false
		}
		select {
		case ev := <-events:
			latest = max(latest, time.Since(sent))
			require.Equal(t, fmt.Sprint(i), strings.Fields(ev)[0], "gap")
		case err := <-sub.Err():
			t.Fatal(err)
		case <-time.After(20 * time.Second):
			t.Fatal("event lost")
		}
	}
	require.Equal(t, slowID, await(t, f.gone, "teardown"))
	eventually(t, "the drop is not counted", func() bool { return f.guard.subs.dropped.Load() == 1 }) // told of first, counted then
	eventually(t, "its connection is still open", func() bool {
		f.srv.mutex.Lock()
		defer f.srv.mutex.Unlock()
		return len(f.srv.codecs) == 1
	})
	return longest, latest, true
}

// dropGoClient has our own client subscribe to more than cfg lets wait for it, and
// returns the error that its subscription ends with.
func dropGoClient(t *testing.T, cfg GuardConfig) (*feedServer, *Client, *ClientSubscription, error) {
	t.Helper()
	f := newFeedServer(t, cfg)
	f.flood = 100
	client, err := Dial(f.url)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	sub, err := client.EthSubscribe(context.Background(), make(chan string, 1000), "feed")
	require.NoError(t, err)
	return f, client, sub, await(t, sub.Err(), "drop")
}

// TestGuardDropReachesGoClient: in unsubscribe mode our own client learns of the
// drop as an error with code and data, and its connection stays.
func TestGuardDropReachesGoClient(t *testing.T) {
	cfg := testGuardConfig()
	cfg.Sub.Overflow, cfg.Sub.Bytes = "unsubscribe", 10000
	f, client, sub, err := dropGoClient(t, cfg)
	var coded interface {
		Error
		DataError
	}
	require.ErrorAs(t, err, &coded)
	require.Equal(t, -32014, coded.ErrorCode())
	data := coded.ErrorData().(map[string]any)
	require.Equal(t, "bytes", data["reason"])
	require.EqualValues(t, 10000, data["limit"])
	require.Contains(t, data, "queued")
	require.Contains(t, data, "lastBlock")
	await(t, f.gone, "teardown")
	sub.Unsubscribe()

	f.flood = 0
	events := make(chan string, 1)
	again, err := client.EthSubscribe(context.Background(), events, "feed")
	require.NoError(t, err, "the connection is of no use any more")
	f.publish("on the same connection")
	require.Equal(t, "on the same connection", await(t, events, "event"))
	again.Unsubscribe()
	eventually(t, "places", func() bool { return f.guard.subs.active.now.Load() == 0 })
	require.Zero(t, f.guard.subs.queued.now.Load())
}

// TestGuardLiveDropEndsTheSubscription: dropped while it is delivered to, it is taken out
// of the handler's table and away from its source, although the connection stays.
func TestGuardLiveDropEndsTheSubscription(t *testing.T) {
	cfg := testGuardConfig()
	cfg.Sub.Overflow = "unsubscribe"
	f := newFeedServer(t, cfg)
	slow := f.dialRaw(t, 4096)
	id := slow.subscribe()
	await(t, f.installed, "subscription")
	padding := strings.Repeat("x", 1<<20)
	for f.guard.subs.dropped.Load() == 0 {
		f.publish(padding)
	}
	require.Equal(t, id, await(t, f.gone, "teardown"))
	f.srv.mutex.Lock()
	defer f.srv.mutex.Unlock()
	require.Len(t, f.srv.codecs, 1)
}

// TestGuardDropClosesWith1013, which says what happened and invites to reconnect.
func TestGuardDropClosesWith1013(t *testing.T) {
	cfg := testGuardConfig()
	cfg.Sub.Bytes = 10000
	f, _, _, err := dropGoClient(t, cfg)
	require.True(t, websocket.IsCloseError(err, websocket.CloseTryAgainLater), "%v", err)
	require.Contains(t, err.Error(), "slow consumer: eth feed (bytes)")
	await(t, f.gone, "teardown")
}

// TestGuardErrorNotificationOnClient: what is not an error is a result, also null.
func TestGuardErrorNotificationOnClient(t *testing.T) {
	f := newFeedServer(t, testGuardConfig())
	client, err := Dial(f.url)
	require.NoError(t, err)
	defer client.Close()
	events := make(chan map[string]any, 3)
	sub, err := client.EthSubscribe(context.Background(), events, "feed")
	require.NoError(t, err)
	await(t, f.installed, "subscription")
	f.publish(nil)
	f.publish(map[string]any{"error": map[string]any{"code": -32014}})
	require.Nil(t, await(t, events, "null"))
	require.Contains(t, await(t, events, "result with a field of that name"), "error")
	sub.Unsubscribe()
}

// TestGuardNothingAfterUnsubscribeReplyOnTheWire, while the producer goes on.
func TestGuardNothingAfterUnsubscribeReplyOnTheWire(t *testing.T) {
	f := newFeedServer(t, testGuardConfig())
	c := f.dialRaw(t, 0)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				f.publish("event")
			}
		}
	}()
	for range 50 {
		id := c.subscribe()
		for range 3 {
			require.Equal(t, id, c.read().Params.Subscription)
		}
		reply, _ := c.call("eth_unsubscribe", id)
		require.Equal(t, "true", string(reply.Result))
		_, after := c.call("rpc_modules")
		require.Empty(t, after, "sent after the reply")
		reply, _ = c.call("eth_unsubscribe", id)
		require.NotNil(t, reply.Error)
	}
	close(stop)
	<-stopped
	require.Zero(t, f.guard.subs.active.now.Load())
	require.Zero(t, f.guard.subs.queued.now.Load())
	require.Zero(t, f.guard.subs.dropped.Load())
}

// TestGuardBatchHeldBackIsBounded: a subscription in a batch is not delivered to
// before the batch has ended, and what is kept back meanwhile is bounded. It is
// dropped when the batch ends, and taken off the handler's table once.
func TestGuardBatchHeldBackIsBounded(t *testing.T) {
	cfg := testGuardConfig()
	cfg.Sub.Overflow = "unsubscribe"
	f := newFeedServer(t, cfg)
	c := f.dialRaw(t, 0)
	require.NoError(t, c.WriteJSON([]map[string]any{
		{"jsonrpc": "2.0", "id": 1, "method": "eth_subscribe", "params": []any{"feed"}},
		{"jsonrpc": "2.0", "id": 2, "method": "eth_slow", "params": []any{}},
	}))
	id := await(t, f.installed, "subscription")
	padding := strings.Repeat("x", 1<<20)
	for range 100 {
		f.publish(padding)
		require.LessOrEqual(t, f.guard.subs.queued.now.Load(), cfg.Sub.Bytes+2<<20)
	}
	require.Zero(t, f.guard.subs.dropped.Load(), "torn down before the handler took it over")
	close(f.release)
	var replies []rawMessage
	require.NoError(t, c.ReadJSON(&replies))
	require.Len(t, replies, 2)
	last := c.read()
	require.Equal(t, id, last.Params.Subscription)
	require.NotNil(t, last.Params.Error)
	require.Equal(t, id, await(t, f.gone, "teardown"))
	require.EqualValues(t, 1, f.guard.subs.dropped.Load())
	c.Close() // closing what was torn down once more would panic
	eventually(t, "books", func() bool { return f.guard.subs.active.now.Load() == 0 })
	require.Zero(t, f.guard.subs.queued.now.Load())
}

// TestGuardSubscriptionLimit refuses with -32005 and the limit, for this connection
// only; places come back.
func TestGuardSubscriptionLimit(t *testing.T) {
	cfg := testGuardConfig()
	cfg.Sub.Max = 3
	f := newFeedServer(t, cfg)
	c := f.dialRaw(t, 0)
	var ids []ID
	for range 3 {
		reply, _ := c.call("eth_subscribe", "broken")
		require.NotNil(t, reply.Error)
		await(t, f.gone, "a failed subscription is left behind")
		ids = append(ids, c.subscribe())
	}
	reply, _ := c.call("eth_subscribe", "feed")
	require.Equal(t, -32005, reply.Error.Code)
	require.Equal(t, map[string]any{"limit": 3.0}, reply.Error.Data)
	f.dialRaw(t, 0).subscribe()
	c.call("eth_unsubscribe", ids[1])
	reply, _ = c.call("eth_subscribe", "nothing")
	require.NotEqual(t, -32005, reply.Error.Code)
	c.subscribe()
	require.EqualValues(t, 1, f.guard.subs.refused.Load())
}

// TestGuardNothingLeftOnTheServer: connections that come, subscribe and vanish, and
// ones that are dropped, leave nothing, and the next client is served.
func TestGuardNothingLeftOnTheServer(t *testing.T) {
	f := newFeedServer(t, testGuardConfig())
	warm := f.dialRaw(t, 0)
	warm.subscribe()
	before := runtime.NumGoroutine()
	for i := range 100 {
		c := f.dialRaw(t, 4096)
		c.subscribe()
		c.subscribe()
		if i%10 == 0 { // dropped
			big := strings.Repeat("x", 9<<20)
			f.publish(big)
			f.publish(big)
			f.publish(big)
			continue
		}
		f.publish("x")
		c.UnderlyingConn().(*net.TCPConn).SetLinger(0)
		c.Close()
	}
	eventually(t, "teardown", func() bool { return f.guard.subs.active.now.Load() <= 1 })
	eventually(t, "goroutines", func() bool { return runtime.NumGoroutine() <= before+3 })
	require.Zero(t, f.guard.subs.queued.now.Load())

	c := f.dialRaw(t, 0)
	id := c.subscribe()
	f.publish("served")
	msg := c.read()
	require.Equal(t, id, msg.Params.Subscription)
	require.Equal(t, `"served"`, string(msg.Params.Result))
}

// TestGuardInProcessClientIsNeverDropped: its queue is the client's own, and a
// client that is busy for a while is not slow.
func TestGuardInProcessClientIsNeverDropped(t *testing.T) {
	g, err := NewGuard(testGuardConfig(), GuardEnv{Procs: 2, HTTPBodyLimit: defaultBodyLimit})
	require.NoError(t, err)
	srv := newPlainServer()
	srv.SetGuard(g.InProc())
	f := newFeedService()
	require.NoError(t, srv.RegisterName("eth", f))
	defer srv.Stop()
	client := DialInProc(srv)
	defer client.Close()
	events := make(chan string)
	sub, err := client.EthSubscribe(context.Background(), events, "feed")
	require.NoError(t, err)
	await(t, f.installed, "subscription")
	padding := strings.Repeat("x", 10<<10)
	const n = 3000
	for range n {
		f.publish(padding) // nobody takes them yet
	}
	for range n {
		select {
		case <-events:
		case err := <-sub.Err():
			t.Fatal(err)
		}
	}
	require.Zero(t, g.subs.dropped.Load())
}

// TestGuardTrustedStreamIsBounded: over IPC a client that does not read loses its
// subscription as well, and holds up nobody; only its number of subscriptions is
// not limited.
func TestGuardTrustedStreamIsBounded(t *testing.T) {
	cfg := testGuardConfig()
	cfg.Sub.Max = 1
	g, err := NewGuard(cfg, GuardEnv{Procs: 2, HTTPBodyLimit: defaultBodyLimit})
	require.NoError(t, err)
	srv := newPlainServer()
	srv.SetGuard(g.Trusted())
	f := newFeedService()
	require.NoError(t, srv.RegisterName("eth", f))
	defer srv.Stop()
	server, client := net.Pipe()
	go srv.ServeCodec(NewCodec(server), 0)
	dec := json.NewDecoder(client)
	for i := range 3 {
		fmt.Fprintf(client, `{"jsonrpc":"2.0","id":%d,"method":"eth_subscribe","params":["feed"]}`, i+1)
		var msg rawMessage
		require.NoError(t, dec.Decode(&msg))
		require.Nil(t, msg.Error)
	}
	big := strings.Repeat("x", 3<<20)
	for range 5 {
		require.Less(t, f.publish(big), 5*time.Second)
	}
	for range 3 {
		await(t, f.gone, "teardown")
	}
	require.EqualValues(t, 1, g.subs.dropped.Load(), "the others end with the connection")
	client.Close()
}

// TestGuardEventOfManyToHealthyReaders: one event of thousands of notifications
// reaches those who read, complete and in order.
func TestGuardEventOfManyToHealthyReaders(t *testing.T) {
	f := newFeedServer(t, testGuardConfig())
	const readers, n = 20, 5000
	var clients []*rawClient
	for range readers {
		c := f.dialRaw(t, 0)
		c.subscribe()
		clients = append(clients, c)
	}
	var results []json.RawMessage
	for i := range n {
		result, err := EncodeResult(i)
		require.NoError(t, err)
		results = append(results, result)
	}
	ev := NewEvent(1, results)
	f.mu.Lock()
	for id, notifier := range f.notifiers {
		require.True(t, notifier.Bounded())
		require.NoError(t, notifier.NotifyEvent(id, ev))
	}
	f.mu.Unlock()
	for _, c := range clients {
		for i := range n {
			require.Equal(t, fmt.Sprint(i), string(c.read().Params.Result))
		}
	}
	require.Zero(t, f.guard.subs.dropped.Load())
}

// TestGuardNotifyInARowIsNotCounted: 8000 calls of Notify by somebody who cannot say what
// belongs together, as those outside eth/filters, to a client that begins to read after
// the last of them, are no 8000 events.
func TestGuardNotifyInARowIsNotCounted(t *testing.T) {
	cfg := testGuardConfig()
	cfg.Sub.Events = 16
	f := newFeedServer(t, cfg)
	c := f.dialRaw(t, 0)
	c.subscribe()
	const n, size = 8000, 500
	text := strings.Repeat("x", size)
	for range n {
		f.publish(text)
	}
	for range n {
		require.Len(t, c.read().Params.Result, size+2)
	}
	require.Zero(t, f.guard.subs.dropped.Load())
}

// TestGuardCallsOfADroppedConnectionEnd: a reply waits its turn and is answered with
// an error, not forgotten, when its connection is given up.
func TestGuardCallsOfADroppedConnectionEnd(t *testing.T) {
	f := newFeedServer(t, testGuardConfig())
	c := f.dialRaw(t, 4096)
	c.subscribe()
	c.send("eth_slow")
	big := strings.Repeat("x", 9<<20)
	for f.guard.subs.dropped.Load() == 0 {
		f.publish(big)
	}
	close(f.release)
	await(t, f.gone, "teardown")
	done := make(chan struct{})
	go func() { f.srv.Stop(); close(done) }()
	await(t, done, "server waits for a call")
}

// TestGuardMisuseOfNotifier panics as upstream's does.
func TestGuardMisuseOfNotifier(t *testing.T) {
	o := newTestOutbox(t, newFakeConn(), wsFraming, testLimits)
	require.True(t, o.reserve())
	n := &Notifier{guard: o.newNotifier("eth")}
	n.guard.describe("feed", false)
	require.Panics(t, func() { n.Notify("0x1", 1) })
	n.sub = &Subscription{ID: "0x1"}
	require.Panics(t, func() { n.Notify("0x2", 1) })
	require.Error(t, n.Notify("0x1", func() {}))
	require.NoError(t, n.Notify("0x1", 1))
}
