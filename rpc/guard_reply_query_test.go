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
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// queryServer serves replies of the size that its query names, as GraphQL.
func queryServer(t *testing.T, change func(*GuardConfig)) (*Guard, string) {
	t.Helper()
	cfg := DefaultGuardConfig
	if change != nil {
		change(&cfg)
	}
	g, err := NewGuard(cfg, GuardEnv{Procs: 2, HTTPBodyLimit: 5 << 20})
	require.NoError(t, err)
	return g, strings.TrimPrefix(newTestHandlerServer(t, g, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var n int
		fmt.Fscan(r.Body, &n)
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, strings.Repeat("x", n))
	})), "http://")
}

// newTestHandlerServer serves h as GraphQL and returns its address.
func newTestHandlerServer(t *testing.T, g *Guard, h http.Handler) string {
	t.Helper()
	srv := &http.Server{Handler: g.WrapHandler("GraphQL", h)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go srv.Serve(g.PrepareServer(srv, l))
	t.Cleanup(func() { srv.Close() })
	return "http://" + l.Addr().String()
}

func (g *Guard) replyBytes() int64 { return g.replies.budget.stats().InUse }

func TestGuardQueryReplyIsChargedUntilTaken(t *testing.T) {
	const size = 24 << 20
	g, addr := queryServer(t, nil)
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	conn.(*net.TCPConn).SetReadBuffer(4096)
	fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 8\r\n\r\n%d", size)
	require.Eventually(t, func() bool { return g.replyBytes() >= size }, 10*time.Second, time.Millisecond)
	require.Eventually(t, func() bool { return g.admission.gate.snapshot().held[permitExec] == 0 }, 10*time.Second, time.Millisecond,
		"the permit is given back before the reply is taken")
	require.GreaterOrEqual(t, g.replyBytes(), int64(size))
	conn.Close()
	require.Eventually(t, func() bool { return g.replyBytes() == 0 }, 10*time.Second, time.Millisecond)
}

func TestGuardQueryReplyThatDoesNotFit(t *testing.T) {
	g, addr := queryServer(t, func(c *GuardConfig) { c.Reply.Max = 1 << 20 })
	ask := func(size int) (int, string) {
		resp, err := http.Post("http://"+addr, "application/json", strings.NewReader(fmt.Sprint(size)))
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(body)
	}
	status, body := ask(1 << 20)
	require.Equal(t, 200, status)
	require.Len(t, body, 1<<20)
	status, body = ask(1<<20 + 1000)
	require.Equal(t, 503, status)
	require.Contains(t, body, "-32003")
	require.EqualValues(t, 1, g.replies.tooLarge.Load())

	full := g.replies.budget.open(budgetKey(1), nil)
	require.NoError(t, full.grow(g.cfg.Reply.Budget/4*3))
	status, body = ask(1 << 20) // expected by now
	require.Equal(t, g.admission.status, status)
	require.Contains(t, body, "-32005")
	full.close()
	require.Zero(t, g.replyBytes())
}

// buildService goes on building after its method has returned.
type buildService struct {
	ctx  chan context.Context
	done chan func()
}

func (s *buildService) TraceChain(ctx context.Context) error {
	rest, done, err := ContinueCall(ctx)
	if err == nil {
		s.ctx <- rest
		s.done <- done
	}
	return err
}

// What a call builds after its reply was sent counts until that is over; what it builds
// even later is refused.
func TestGuardContinuedCallIsMetered(t *testing.T) {
	g, err := NewGuard(DefaultGuardConfig, GuardEnv{Procs: 2, HTTPBodyLimit: 5 << 20})
	require.NoError(t, err)
	srv := newPlainServer()
	srv.SetGuard(g)
	s := &buildService{make(chan context.Context, 1), make(chan func(), 1)}
	require.NoError(t, srv.RegisterName("debug", s))
	client := DialInProc(srv)
	defer client.Close()
	var null json.RawMessage
	require.NoError(t, client.Call(&null, "debug_traceChain"))
	meter := BuildMeterFromContext(<-s.ctx)
	require.NotNil(t, meter)
	require.NoError(t, meter.Add(100<<20))
	require.GreaterOrEqual(t, g.replyBytes(), int64(100<<20))
	require.Equal(t, 1, g.admission.gate.snapshot().held[permitHeavy])
	meter.GiveBack(90 << 20)
	require.NoError(t, meter.Add(150<<20), "what was delivered does not count")
	(<-s.done)()
	empty := func() bool { return g.replyBytes() == 0 && g.admission.gate.snapshot().held[permitHeavy] == 0 }
	require.Eventually(t, empty, 10*time.Second, time.Millisecond) // the call's own reply may be on its way
	require.Error(t, meter.Add(400<<20))
	require.Zero(t, g.replyBytes())
}
