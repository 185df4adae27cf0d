// SPDX-License-Identifier: LGPL-3.0-or-later

package node

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/rpc"
	"github.com/stretchr/testify/require"
)

type lenService struct{}

func (lenService) Len(s string) int { return len(s) }

// guardedServer is an HTTP server of a node with a guard, as admin_startHTTP starts
// it: nobody tells it the body limit.
func guardedServer(t *testing.T, bodyLimit int, config httpConfig) *httpServer {
	t.Helper()
	cfg := rpc.DefaultGuardConfig
	cfg.Body.Idle = 150 * time.Millisecond
	timeouts := rpc.DefaultHTTPTimeouts
	g, err := rpc.NewGuard(cfg, rpc.GuardEnv{Procs: 2, HTTPBodyLimit: int64(bodyLimit), ReadTimeout: timeouts.ReadTimeout})
	require.NoError(t, err)
	h := upstreamHTTPServer(timeouts)
	h.guard = &nodeGuard{guard: g, bodyLimit: bodyLimit}
	require.NoError(t, h.setListenAddr("127.0.0.1", 0))
	require.NoError(t, h.enableRPC([]rpc.API{{Namespace: "in", Service: lenService{}}}, config))
	require.NoError(t, h.start())
	t.Cleanup(h.stop)
	return h
}

// Trap: node's gzip writer hides the connection's own, so that per-request deadlines
// and full duplex fail for clients that accept gzip.
func TestGuardDeadlinesReachThroughGzip(t *testing.T) {
	h := guardedServer(t, 5<<20, httpConfig{Vhosts: []string{"*"}, CorsAllowedOrigins: []string{"*"}})
	conn, err := net.Dial("tcp", h.listenAddr())
	require.NoError(t, err)
	defer conn.Close()
	fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n ")
	conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.Equal(t, 408, resp.StatusCode)
	require.Empty(t, resp.Header.Get("Content-Encoding"))
	var a struct{ Error struct{ Code int } }
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&a))
	require.NotZero(t, a.Error.Code)
}

// Replies to clients that accept gzip are compressed as before.
func TestGuardLeavesCompressionAlone(t *testing.T) {
	h := guardedServer(t, 5<<20, httpConfig{})
	req, _ := http.NewRequest("POST", "http://"+h.listenAddr(), strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"in_len","params":["abc"]}`))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept-Encoding", "gzip")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, "gzip", resp.Header.Get("Content-Encoding"))
	gz, err := gzip.NewReader(resp.Body)
	require.NoError(t, err)
	var a struct{ Result int }
	require.NoError(t, json.NewDecoder(gz).Decode(&a))
	require.Equal(t, 3, a.Result)
}

// Trap: admin_startHTTP and admin_startWS drop the body limit.
func TestGuardServersStartedLaterHaveTheBodyLimit(t *testing.T) {
	for limit, want := range map[int]int{1 << 20: 413, 8 << 20: 200} {
		h := guardedServer(t, limit, httpConfig{})
		body := `{"jsonrpc":"2.0","id":1,"method":"in_len","params":["` + strings.Repeat("x", 6<<20) + `"]}`
		resp, err := http.Post("http://"+h.listenAddr(), "application/json", strings.NewReader(body))
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, want, resp.StatusCode, limit)
	}
}

// Trap: JWT checked after the body was charged. A wrong token is answered before a
// byte of the body is read, on a server that is trusted.
func TestGuardWrongTokenChargesNothing(t *testing.T) {
	h := guardedServer(t, 5<<20, httpConfig{rpcEndpointConfig: rpcEndpointConfig{jwtSecret: make([]byte, 32)}})
	conn, err := net.Dial("tcp", h.listenAddr())
	require.NoError(t, err)
	defer conn.Close()
	fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nAuthorization: Bearer x\r\nContent-Length: 5000000\r\n\r\n")
	conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.Equal(t, 401, resp.StatusCode)
}
