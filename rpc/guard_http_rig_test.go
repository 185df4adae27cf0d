// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// intakeService is what the servers of these tests serve as "in".
type intakeService struct {
	reached atomic.Int32
	gate    chan struct{} // Hold returns when it is closed
}

func (s *intakeService) Hold(ctx context.Context, data string) int {
	s.reached.Add(1)
	<-s.gate
	return len(data)
}

func (s *intakeService) Len(data string) int { return len(data) }

func (s *intakeService) Nap(ms int) string {
	time.Sleep(time.Duration(ms) * time.Millisecond)
	return "rested"
}

// intakeServer is a guarded RPC server on a real socket.
type intakeServer struct {
	*intakeService
	g    *Guard
	srv  *Server
	http *http.Server
	addr string
}

func newIntakeServer(t *testing.T, change func(*GuardConfig, *http.Server)) *intakeServer {
	t.Helper()
	s := &intakeServer{intakeService: &intakeService{gate: make(chan struct{})}, srv: newPlainServer(), http: new(http.Server)}
	cfg := DefaultGuardConfig
	cfg.Body.WSLimit = 5 << 20
	s.http.ReadTimeout, s.http.WriteTimeout = 5*time.Second, 5*time.Second
	s.http.Protocols = new(http.Protocols)
	s.http.Protocols.SetHTTP1(true)
	s.http.Protocols.SetUnencryptedHTTP2(true)
	if change != nil {
		change(&cfg, s.http)
	}
	g, err := NewGuard(cfg, GuardEnv{Procs: 2, HTTPBodyLimit: 5 << 20, ReadTimeout: s.http.ReadTimeout, WriteTimeout: s.http.WriteTimeout})
	require.NoError(t, err)
	s.g = g
	s.srv.SetBatchLimits(10, 1<<20)
	s.srv.SetGuard(g)
	require.NoError(t, s.srv.RegisterName("in", s.intakeService))
	if s.http.Handler == nil {
		s.http.Handler = s.srv
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s.addr = l.Addr().String()
	go s.http.Serve(g.PrepareServer(s.http, l))
	t.Cleanup(func() {
		s.http.Close()
		s.srv.Stop()
		s.settles(t)
	})
	return s
}

// settles waits for the books to be empty again.
func (s *intakeServer) settles(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return s.g.body.stats().InUse == 0 }, 5*time.Second, 5*time.Millisecond, "bytes in use")
}

func intakeCall(method string, size int) string {
	const frame = `{"jsonrpc":"2.0","id":1,"method":"in_%s","params":["%s"]}`
	return fmt.Sprintf(frame, method, strings.Repeat("x", max(0, size-len(frame)-len(method)+4)))
}

type rpcAnswer struct {
	ID     any `json:"id"`
	Result any `json:"result"`
	Error  *struct {
		Code    int              `json:"code"`
		Message string           `json:"message"`
		Data    map[string]int64 `json:"data"`
	} `json:"error"`
}

func post(t *testing.T, client *http.Client, url, body string) (*http.Response, rpcAnswer) {
	t.Helper()
	resp, err := client.Post(url, "application/json", strings.NewReader(body))
	require.NoError(t, err)
	defer resp.Body.Close()
	var a rpcAnswer
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &a), "%s", raw)
	return resp, a
}
