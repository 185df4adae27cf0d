// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func dialIdle(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestGuardConnLimitReads503(t *testing.T) {
	s := newIntakeServer(t, func(c *GuardConfig, _ *http.Server) { c.Conn.Max, c.Conn.MaxPerClient = 2, 2 })
	first := dialIdle(t, s.addr)
	dialIdle(t, s.addr)
	require.Eventually(t, func() bool { return s.g.conns.active.Load() == 2 }, 5*time.Second, time.Millisecond)
	// Peers that count as proxies displace nobody.
	resp, a := post(t, &http.Client{Transport: new(http.Transport)}, "http://"+s.addr, intakeCall("len", 10))
	require.Equal(t, 503, resp.StatusCode)
	require.Equal(t, -32005, a.Error.Code)
	require.Equal(t, "1", resp.Header.Get("Retry-After"))
	require.EqualValues(t, 1, s.g.conns.refused.Load())
	first.Close()
	require.Eventually(t, func() bool { return s.g.conns.active.Load() == 1 }, 5*time.Second, time.Millisecond)
	resp, _ = post(t, &http.Client{Transport: new(http.Transport)}, "http://"+s.addr, intakeCall("len", 10))
	require.Equal(t, 200, resp.StatusCode)
}

func TestGuardConnPerClient(t *testing.T) {
	s := newIntakeServer(t, func(c *GuardConfig, _ *http.Server) {
		c.Conn.MaxPerClient = 3
		c.Client.Local = true
	})
	for range 3 {
		dialIdle(t, s.addr)
	}
	require.Eventually(t, func() bool { return s.g.conns.active.Load() == 3 }, 5*time.Second, time.Millisecond)
	resp, _ := post(t, &http.Client{Transport: new(http.Transport)}, "http://"+s.addr, intakeCall("len", 10))
	require.Equal(t, 503, resp.StatusCode)
}

// A busy connection is never closed for another one, an idle one is.
func TestGuardConnIdleOneMakesRoom(t *testing.T) {
	s := newIntakeServer(t, func(c *GuardConfig, _ *http.Server) {
		c.Conn.Max, c.Conn.MaxPerClient = 4, 4
		c.Client.Local = true
	})
	idle := dialIdle(t, s.addr)
	require.Eventually(t, func() bool { return s.g.conns.active.Load() == 1 }, 5*time.Second, time.Millisecond)
	for range 3 {
		go http.Post("http://"+s.addr, "application/json", strings.NewReader(intakeCall("hold", 100)))
	}
	require.Eventually(t, func() bool { return s.reached.Load() == 3 }, 5*time.Second, time.Millisecond)
	other := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	client := &http.Client{Transport: &http.Transport{DialContext: other.DialContext}}
	resp, _ := post(t, client, "http://"+s.addr, intakeCall("len", 10))
	require.Equal(t, 200, resp.StatusCode)
	idle.SetReadDeadline(time.Now().Add(time.Second))
	_, err := idle.Read(make([]byte, 1))
	require.Equal(t, io.EOF, err)
	client.CloseIdleConnections()
	close(s.gate)
}

func TestGuardHeadersOver64KiBRead431(t *testing.T) {
	s := newIntakeServer(t, nil)
	for size, want := range map[int]int{60 << 10: 200, 65 << 10: 431} {
		conn := dialIdle(t, s.addr)
		body := intakeCall("len", 10)
		go fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\nX-Long: %s\r\n\r\n%s",
			len(body), bytes.Repeat([]byte("h"), size), body)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		require.Equal(t, want, resp.StatusCode, size)
	}
}

// A server that stops must not wait for bodies, new connections or clients that do
// not read: RPC is down in under 5 s.
func TestGuardShutdownIsQuick(t *testing.T) {
	s := newIntakeServer(t, func(_ *GuardConfig, h *http.Server) { h.ReadTimeout, h.WriteTimeout = time.Minute, time.Minute })
	dialIdle(t, s.addr)
	slow := dialIdle(t, s.addr)
	fmt.Fprint(slow, "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n ")
	require.Eventually(t, func() bool { return s.g.body.stats().InUse > 0 }, 5*time.Second, time.Millisecond)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	start := time.Now()
	require.NoError(t, s.http.Shutdown(ctx))
	require.Less(t, time.Since(start), 3*time.Second)
	resp, err := http.ReadResponse(bufio.NewReader(slow), nil)
	require.NoError(t, err)
	require.Equal(t, 503, resp.StatusCode)
	require.EqualValues(t, 1, s.g.bodyBooks.shutdown.Load())
	require.Eventually(t, func() bool { return s.g.conns.active.Load() == 0 }, 5*time.Second, time.Millisecond)
}
