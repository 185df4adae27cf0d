// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
	"github.com/gorilla/websocket"
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

// What an HTTP/2 client is told on connecting: how many streams it may open, and how much
// it may send ahead on one and on all of them.
func TestGuardH2Settings(t *testing.T) {
	s := newIntakeServer(t, nil)
	conn := dialIdle(t, s.addr)
	conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00") // and empty settings
	const settings, windowUpdate = 4, 8                                                          // frame types of RFC 9113, section 6
	const maxStreams, initialWindow = 3, 4
	told := make(map[uint16]uint32)
	for window := uint32(65535); window == 65535; { // what the RFC gives a connection
		var head [9]byte
		_, err := io.ReadFull(conn, head[:])
		require.NoError(t, err)
		payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		_, err = io.ReadFull(conn, payload)
		require.NoError(t, err)
		switch head[3] {
		case settings:
			for ; len(payload) >= 6; payload = payload[6:] {
				told[binary.BigEndian.Uint16(payload)] = binary.BigEndian.Uint32(payload[2:])
			}
		case windowUpdate:
			window += binary.BigEndian.Uint32(payload)
			require.EqualValues(t, h2Receive, window)
		}
	}
	require.EqualValues(t, h2Streams, told[maxStreams])
	require.EqualValues(t, h2Receive, told[initialWindow])
}

// A server that stops closes what its clients have left open after a while: it waits for
// nobody who does not answer.
func TestGuardStoppingServerClosesConnections(t *testing.T) {
	g, err := NewGuard(DefaultGuardConfig, GuardEnv{Procs: 2})
	require.NoError(t, err)
	clock := new(mclock.Simulated)
	g.clock = clock
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	reached, release := make(chan struct{}), make(chan struct{})
	srv := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(reached)
		<-release
	})}
	defer close(release)
	go srv.Serve(g.PrepareServer(srv, l))
	conn := dialIdle(t, l.Addr().String())
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	<-reached
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go srv.Shutdown(ctx)
	clock.WaitForTimers(1)
	clock.Run(stopGrace - 1)
	require.EqualValues(t, 1, g.conns.active.Load())
	clock.Run(1)
	conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	require.Zero(t, g.conns.active.Load())
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

// Trap: WebSockets behind a trusted proxy are their clients', not the proxy's.
func TestGuardConnPerClientBehindAProxy(t *testing.T) {
	for _, dry := range []bool{false, true} {
		s := newIntakeServer(t, func(c *GuardConfig, _ *http.Server) {
			c.Conn.MaxPerClient = 3
			c.Client.TrustedProxies = []string{"127.0.0.1/32"}
			c.DryRun = dry
		})
		streams, calls := anyOrigin(s.srv), s.http.Handler
		s.http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if websocket.IsWebSocketUpgrade(r) {
				streams.ServeHTTP(w, r)
			} else {
				calls.ServeHTTP(w, r)
			}
		})
		dial := func(client string) (*websocket.Conn, int) {
			conn, resp, _ := websocket.DefaultDialer.Dial("ws://"+s.addr, http.Header{"X-Forwarded-For": {client}})
			if conn != nil {
				t.Cleanup(func() { conn.Close() })
			}
			return conn, resp.StatusCode
		}
		var last *websocket.Conn
		for range 3 {
			conn, status := dial("192.0.2.1")
			require.Equal(t, http.StatusSwitchingProtocols, status)
			last = conn
		}
		_, status := dial("192.0.2.1")
		require.EqualValues(t, 1, s.g.conns.refused.Load())
		if dry {
			require.Equal(t, http.StatusSwitchingProtocols, status)
			continue
		}
		require.Equal(t, http.StatusServiceUnavailable, status)
		_, status = dial("192.0.2.2")
		require.Equal(t, http.StatusSwitchingProtocols, status, "another client of the proxy's")
		resp, _ := post(t, &http.Client{Transport: new(http.Transport)}, "http://"+s.addr, intakeCall("len", 10))
		require.Equal(t, http.StatusOK, resp.StatusCode)
		last.Close()
		require.Eventually(t, func() bool {
			_, status := dial("192.0.2.1")
			return status == http.StatusSwitchingProtocols
		}, 5*time.Second, 10*time.Millisecond)
	}
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
