// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Who sends much at a time, or a long header, lets others run after each read; who sends
// little never does, however often.
func TestGuardReadersYield(t *testing.T) {
	g, err := NewGuard(DefaultGuardConfig, GuardEnv{Procs: 2})
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		buf := make([]byte, 64<<10)
		for {
			if _, err := io.ReadFull(r.Body, buf); err != nil {
				return
			}
		}
	})}
	var yields atomic.Int32
	gl := g.PrepareServer(srv, l).(*guardListener)
	gl.yield = func() { yields.Add(1) }
	go srv.Serve(gl)
	t.Cleanup(func() { srv.Close() })
	conn := dialIdle(t, l.Addr().String())
	answers := bufio.NewReader(conn)
	ask := func(header, body string) (yielded int) {
		t.Helper()
		before := yields.Load()
		_, err := fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n%s\r\n%s", len(body), header, body)
		require.NoError(t, err)
		resp, err := http.ReadResponse(answers, nil)
		require.NoError(t, err)
		resp.Body.Close()
		require.Equal(t, http.StatusOK, resp.StatusCode)
		return int(yields.Load() - before)
	}
	for range 50 {
		require.Zero(t, ask("", strings.Repeat("x", 1000)))
	}
	require.NotZero(t, ask("X-Long: "+strings.Repeat("x", 50_000)+"\r\n", ""))
	require.NotZero(t, ask("", strings.Repeat("x", 4<<20)))
	require.Zero(t, ask("", strings.Repeat("x", 1000)), "it is not held against the next request")
}

func TestReadPace(t *testing.T) {
	var p readPace
	require.False(t, p.yields(yieldHeader, true))
	require.True(t, p.yields(1, true))
	require.False(t, p.yields(1, false), "frames")
	p.header(false)
	require.False(t, p.yields(yieldRead-1, true))
	require.True(t, p.yields(yieldRead, true))
	p.header(true)
	require.False(t, p.yields(yieldHeader, true))
}
