// SPDX-License-Identifier: LGPL-3.0-or-later

package node

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/p2p"
	"github.com/ethereum/go-ethereum/rpc"
)

// engineSecret is what the consensus client of guardedNode knows.
var engineSecret = [32]byte{1}

// guardedNode is a running node that serves HTTP and WebSocket, and a consensus client.
func guardedNode(t *testing.T, prepare func(*Node)) (*Node, *rpc.Client) {
	t.Helper()
	secret := filepath.Join(t.TempDir(), "jwt")
	require.NoError(t, os.WriteFile(secret, []byte(hexutil.Encode(engineSecret[:])), 0o600))
	cfg := DefaultConfig
	cfg.DataDir, cfg.IPCPath = "", ""
	cfg.P2P = p2p.Config{NoDiscovery: true, NoDial: true}
	cfg.HTTPHost, cfg.HTTPPort = "127.0.0.1", 0
	cfg.WSHost, cfg.WSPort = "127.0.0.1", 0
	cfg.HTTPModules, cfg.WSModules = []string{"in", "rpc"}, []string{"in", "rpc"}
	cfg.AuthPort, cfg.JWTSecret = 0, secret
	cfg.RPCGuard.Body.WSLimit = 1 << 20
	n, err := New(&cfg)
	require.NoError(t, err)
	t.Cleanup(func() { n.Close() })
	n.RegisterAPIs([]rpc.API{
		{Namespace: "in", Service: lenService{}},
		{Namespace: "eth", Service: lenService{}, Authenticated: true}, // one that makes the node serve them
	})
	if prepare != nil {
		prepare(n)
	}
	require.NoError(t, n.Start())
	admin := n.Attach()
	t.Cleanup(admin.Close)
	return n, admin
}

// status asks the node's guard what it counts.
func status(t *testing.T, admin *rpc.Client) (s rpc.RPCStatus) {
	t.Helper()
	require.NoError(t, admin.Call(&s, "admin_rpcStatus"))
	return s
}

// requireServes has a client call a method of lenService.
func requireServes(t *testing.T, client *rpc.Client, method string) {
	t.Helper()
	var length int
	require.NoError(t, client.Call(&length, method, "four"))
	require.Equal(t, 4, length)
}

// TestGuardNodeGuardsItsServers: the node's one guard sees the calls of its HTTP and of
// its WebSocket server, and their connections. That it answers at all shows that the
// node has made it.
func TestGuardNodeGuardsItsServers(t *testing.T) {
	n, admin := guardedNode(t, nil)
	require.Equal(t, rpc.DefaultGuardConfig.Admission.Concurrency, status(t, admin).Limits.Admission.Concurrency)
	for _, url := range []string{n.HTTPEndpoint(), n.WSEndpoint()} {
		before := status(t, admin)
		client, err := rpc.Dial(url)
		require.NoError(t, err)
		defer client.Close()
		requireServes(t, client, "in_len")
		after := status(t, admin)
		require.Equal(t, before.Admission.Books["normal"].Arrived+1, after.Admission.Books["normal"].Arrived, "%s", url)
		require.Equal(t, before.Intake["conn/active"]+1, after.Intake["conn/active"], "%s", url)
	}

	// A message that is too large for the guard, not for upstream. Its connection is closed.
	// Upstream's client does not tell the call so if it reads the close before its write
	// returns, and that succeeds: the call would wait for ever.
	client, err := rpc.Dial(n.WSEndpoint())
	require.NoError(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var length int
	require.Error(t, client.CallContext(ctx, &length, "in_len", strings.Repeat("x", 2<<20)))
}

// TestGuardNodeTrustsTheConsensusClient: what comes with the JWT secret passes by the gate
// and the books of connections, over HTTP and WebSocket.
func TestGuardNodeTrustsTheConsensusClient(t *testing.T) {
	n, admin := guardedNode(t, nil)
	before := status(t, admin)
	for _, url := range []string{n.HTTPAuthEndpoint(), n.WSAuthEndpoint()} {
		client, err := rpc.DialOptions(t.Context(), url, rpc.WithHTTPAuth(NewJWTAuth(engineSecret)))
		require.NoError(t, err)
		defer client.Close()
		requireServes(t, client, "eth_len")
		after := status(t, admin)
		require.Equal(t, before.Admission.Books["normal"], after.Admission.Books["normal"], "%s", url)
		require.Equal(t, before.Intake["conn/active"], after.Intake["conn/active"], "%s", url)
	}
}

// TestGuardNodeGuardsOtherHandlers: bodies of what is mounted beside JSON-RPC are read
// under the guard's limit.
func TestGuardNodeGuardsOtherHandlers(t *testing.T) {
	read := -1
	n, _ := guardedNode(t, func(n *Node) {
		n.RegisterHandler("GraphQL", "/graphql", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			read = len(b)
		}))
	})
	for size, code := range map[int]int{1000: http.StatusOK, 6 << 20: http.StatusRequestEntityTooLarge} {
		read = -1
		resp, err := http.Post(n.HTTPEndpoint()+"/graphql", "application/json", bytes.NewReader(make([]byte, size)))
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, code, resp.StatusCode, "a body of %d bytes", size)
		if code == http.StatusOK {
			require.Equal(t, size, read)
		} else {
			require.Equal(t, -1, read, "the handler was called")
		}
	}
}
