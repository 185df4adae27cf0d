// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
