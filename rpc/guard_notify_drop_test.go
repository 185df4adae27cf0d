// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
)

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
