// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
)

// Ten thousand clients that do not read do not keep a server that stops for longer than
// a second, and clients that do read take nothing of it.
func TestClosePace(t *testing.T) {
	clock := new(mclock.Simulated)
	p := &closePace{clock: clock}
	closeAll := func(n int, takes func(grace time.Duration) time.Duration) (total time.Duration) {
		for range n {
			grace, end := p.begin()
			d := takes(grace)
			clock.Run(d)
			end()
			total += d
		}
		return total
	}
	stalled := func(grace time.Duration) time.Duration { return grace }
	clock.Run(time.Hour)
	if took := closeAll(10000, stalled); took != closeTotal {
		t.Errorf("10000 stalled connections took %v", took)
	}
	clock.Run(2 * time.Second)
	if took := closeAll(1, stalled); took != closeGrace {
		t.Errorf("one that is closed later gets %v", took)
	}
	clock.Run(2 * time.Second)
	healthy := 0
	closeAll(500, func(grace time.Duration) time.Duration {
		if grace == closeGrace {
			healthy++
		}
		return 100 * time.Microsecond
	})
	if healthy != 500 {
		t.Errorf("%d of 500 clients that read had the time to", healthy)
	}
}

// A server that stops ends all its streams with the first that it closes: those whose
// turn comes later would go on with what their clients have asked for.
func TestGuardStoppingServerEndsAllStreamsAtOnce(t *testing.T) {
	g, err := NewGuard(DefaultGuardConfig, testGuardEnv)
	require.NoError(t, err)
	srv, other := newPlainServer(), newPlainServer()
	dial := func(srv *Server) *websocket.Conn {
		srv.SetGuard(g)
		hs := httptest.NewServer(anyOrigin(srv))
		t.Cleanup(hs.Close)
		conn, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(hs.URL, "http"), nil)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		require.NoError(t, conn.WriteMessage(websocket.TextMessage, []byte(`{"jsonrpc":"2.0","id":1,"method":"rpc_modules"}`)))
		_, _, err = conn.ReadMessage()
		require.NoError(t, err)
		return conn
	}
	clients := []*websocket.Conn{dial(srv), dial(srv), dial(srv)}
	bystander := dial(other)

	srv.mutex.Lock() // as Stop does, up to the first
	srv.run.Store(false)
	for codec := range srv.codecs {
		codec.close()
		break
	}
	srv.mutex.Unlock()
	for _, c := range clients {
		_, _, err := c.ReadMessage()
		require.True(t, websocket.IsCloseError(err, websocket.CloseNormalClosure), "%v", err)
	}
	require.NoError(t, bystander.WriteMessage(websocket.TextMessage, []byte(`{"jsonrpc":"2.0","id":1,"method":"rpc_modules"}`)))
	_, _, err = bystander.ReadMessage()
	require.NoError(t, err, "another server's stream")

	srv.Stop()
	other.Stop()
	require.Eventually(t, func() bool {
		g.streams.mu.Lock()
		defer g.streams.mu.Unlock()
		return len(g.streams.of) == 0
	}, 10*time.Second, 10*time.Millisecond, "streams are remembered")
}
