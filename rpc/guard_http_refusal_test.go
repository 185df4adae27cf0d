// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Trap: the answer lost to a reset because the client was still sending.
func TestGuardRefusalIsReadWhileTheClientSends(t *testing.T) {
	const clients, size = 60, 4 << 20
	s := newIntakeServer(t, func(c *GuardConfig, _ *http.Server) { c.Body.Budget = 5 << 20; c.Body.WSLimit = 1 << 20 })
	full := s.g.body.open(budgetKey(1), nil)
	require.NoError(t, full.grow(5<<20))
	defer full.close()
	var wg sync.WaitGroup
	var read atomic.Int32
	payload := bytes.Repeat([]byte("x"), size)
	for range clients {
		wg.Go(func() {
			conn, err := net.Dial("tcp", s.addr)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", size)
			// Writes everything before it reads, as many clients do.
			if _, err := conn.Write(payload); err != nil {
				return
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err == nil && resp.StatusCode == 503 {
				read.Add(1)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, clients, read.Load())
}

// Trap: the answer lost to a reset because the client was still sending, when its body
// had lost its bytes to another client's and its connection a read deadline in the past.
func TestGuardDisplacedBodyReadsTheRefusal(t *testing.T) {
	t.Run("length", func(t *testing.T) { testDisplacedBody(t, false) })
	// The reader of chunks says its first error for ever.
	t.Run("chunked", func(t *testing.T) { testDisplacedBody(t, true) })
}

func testDisplacedBody(t *testing.T, chunked bool) {
	const size = 4 << 20
	s := newIntakeServer(t, func(c *GuardConfig, _ *http.Server) { c.Body.Budget = 5 << 20; c.Client.Local = true })
	begin := func(from string, n int) net.Conn {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		conn, err := d.Dial("tcp", s.addr)
		if err != nil {
			t.Skip("one loopback address only:", err)
		}
		t.Cleanup(func() { conn.Close() })
		length, chunk := fmt.Sprint("Content-Length: ", size), ""
		if chunked {
			length, chunk = "Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n", size)
		}
		fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n%s\r\n\r\n%s", length, chunk)
		_, err = conn.Write(bytes.Repeat([]byte("x"), n))
		require.NoError(t, err)
		return conn
	}
	held := func(n int64) {
		t.Helper()
		require.Eventually(t, func() bool { return s.g.body.stats().InUse >= n }, 5*time.Second, time.Millisecond)
	}
	const part = 9 << 18 // 2.25 MiB
	loser := begin("127.0.0.2", part)
	held(part)
	begin("127.0.0.2", part)
	held(2 * part)
	begin("127.0.0.3", 1<<20)
	require.Eventually(t, func() bool { return s.g.body.stats().Evicted == 1 }, 5*time.Second, time.Millisecond)
	time.Sleep(100 * time.Millisecond) // what ends a connection at once would have ended it
	_, err := loser.Write(make([]byte, size-part))
	require.NoError(t, err)
	loser.SetReadDeadline(time.Now().Add(5 * time.Second))
	resp, err := http.ReadResponse(bufio.NewReader(loser), nil)
	require.NoError(t, err)
	require.Equal(t, 503, resp.StatusCode)
}

// Trap: a refusal that waits for up to 256 KiB of body before its header goes out. The
// client sends nothing more before it has read the answer.
func TestGuardRefusalWaitsForNoBody(t *testing.T) {
	s := newIntakeServer(t, nil)
	full := s.g.body.open(budgetKey(1), nil)
	require.NoError(t, full.grow(s.g.body.largeLimit))
	defer full.close()
	conn := dialIdle(t, s.addr)
	fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 250000\r\n\r\n%s", strings.Repeat(" ", 100_000))
	conn.SetReadDeadline(time.Now().Add(s.http.ReadTimeout / 2)) // what a server that waits would wait
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.Equal(t, 503, resp.StatusCode)
}

// Traps: a body that stalls ends with JSON in place of an empty answer, at once
// releases what it held, and leaves no deadline behind.
func TestGuardStalledBodyReads408(t *testing.T) {
	s := newIntakeServer(t, func(c *GuardConfig, _ *http.Server) { c.Body.Idle = 150 * time.Millisecond })
	conn, err := net.Dial("tcp", s.addr)
	require.NoError(t, err)
	defer conn.Close()
	fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 5000000\r\n\r\n%s", strings.Repeat(" ", 64))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.Equal(t, 408, resp.StatusCode)
	require.True(t, resp.Close)
	var a rpcAnswer
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&a))
	require.Equal(t, errcodeBodyTimeout, a.Error.Code)
	require.EqualValues(t, 1, s.g.bodyBooks.idle.Load())
	require.EqualValues(t, budgetStep, s.g.body.stats().High)
	s.settles(t)
}

// Trap: 408 racing the equal write time-out. The server's read and write time-outs
// end in the same moment; the answer must leave all the same.
func TestGuardSlowBodyReads408AtTheAbsoluteLimit(t *testing.T) {
	s := newIntakeServer(t, func(_ *GuardConfig, h *http.Server) {
		h.ReadTimeout, h.WriteTimeout = 3*time.Second, 2*time.Second // 408 at 2 s
	})
	conn, err := net.Dial("tcp", s.addr)
	require.NoError(t, err)
	defer conn.Close()
	fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n")
	go func() {
		for range 100 {
			time.Sleep(50 * time.Millisecond)
			if _, err := conn.Write([]byte(" ")); err != nil {
				return
			}
		}
	}()
	start := time.Now()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.Equal(t, 408, resp.StatusCode)
	require.Less(t, time.Since(start), 2800*time.Millisecond)
	require.EqualValues(t, 1, s.g.bodyBooks.slow.Load())
}

func TestGuardTooLargeReads413(t *testing.T) {
	s := newIntakeServer(t, nil)
	body := intakeCall("len", 6<<20)
	resp, a := post(t, new(http.Client), "http://"+s.addr, body)
	require.Equal(t, 413, resp.StatusCode)
	require.Equal(t, -32600, a.Error.Code)
	require.Equal(t, fmt.Sprintf("content length too large (%d>%d)", len(body), 5<<20), a.Error.Message)
	require.Zero(t, s.g.body.stats().High, "nothing charged")

	req, _ := http.NewRequest("POST", "http://"+s.addr, io.MultiReader(strings.NewReader(body))) // chunked
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, 413, resp.StatusCode)
	require.EqualValues(t, 2, s.g.bodyBooks.tooLarge.Load())
}

// Trap: a compressing wrapper that has already set Content-Encoding before the
// refusal is written as plain text.
func TestGuardRefusalThroughCompression(t *testing.T) {
	s := newIntakeServer(t, nil)
	compress := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		gz := gzip.NewWriter(w)
		defer gz.Close()
		s.srv.ServeHTTP(&compressedWriter{w, gz}, r)
	})
	s.http.Handler = compress
	resp, a := post(t, new(http.Client), "http://"+s.addr, intakeCall("len", 6<<20))
	require.Equal(t, 413, resp.StatusCode)
	require.True(t, resp.Uncompressed)
	require.Equal(t, -32600, a.Error.Code)
}

type compressedWriter struct {
	http.ResponseWriter
	gz *gzip.Writer
}

func (w *compressedWriter) Write(p []byte) (int, error) { return w.gz.Write(p) }

func (w *compressedWriter) Flush() { w.gz.Flush(); w.ResponseWriter.(http.Flusher).Flush() }

func (w *compressedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A refusal comes at once, not when 256 KiB of body have been read.
func TestGuardRefusalDoesNotWaitForTheBody(t *testing.T) {
	s := newIntakeServer(t, nil)
	conn, err := net.Dial("tcp", s.addr)
	require.NoError(t, err)
	defer conn.Close()
	fmt.Fprint(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 6000000\r\n\r\n")
	conn.SetReadDeadline(time.Now().Add(2 * time.Second))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.Equal(t, 413, resp.StatusCode)
}
