// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
	"github.com/ethereum/go-ethereum/metrics"
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

// Attack 25: exactly as many bodies as fit reach a method, the others read why
// not, and what is held while methods run is exactly those bodies.
func TestGuardBodyBudgetAdmitsExactlyWhatFits(t *testing.T) {
	const size = 1_600_000
	s := newIntakeServer(t, func(c *GuardConfig, _ *http.Server) {
		c.Body.WSLimit = 1_700_000
		c.Body.Budget = 6_700_000 // three quarters of it hold three bodies and not four
	})
	s.g.env.HTTPBodyLimit = 1_700_000
	s.srv.SetHTTPBodyLimit(1_700_000)
	var (
		wg              sync.WaitGroup
		served, refused atomic.Int32
		body            = intakeCall("hold", size)
	)
	for range 8 {
		wg.Go(func() {
			resp, a := post(t, new(http.Client), "http://"+s.addr, body)
			if resp.StatusCode == 200 {
				served.Add(1)
				return
			}
			refused.Add(1)
			if resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "1" || a.Error == nil || a.Error.Code != -32005 || a.ID != nil {
				t.Errorf("refused with %v %+v", resp.Status, a)
				return
			}
			d := a.Error.Data
			if d["limit"] != 6_700_000 || d["wanted"] <= d["available"] {
				t.Errorf("data %v", d)
			}
		})
	}
	require.Eventually(t, func() bool { return s.reached.Load() == 3 && refused.Load() == 5 }, 10*time.Second, 5*time.Millisecond)
	require.EqualValues(t, 3*len(body), s.g.body.stats().InUse)
	close(s.gate)
	wg.Wait()
	require.EqualValues(t, 3, served.Load())
	s.settles(t)
	require.EqualValues(t, 5, s.g.bodyBooks.full.Load())
	resp, _ := post(t, new(http.Client), "http://"+s.addr, body)
	require.Equal(t, 200, resp.StatusCode, "a retry succeeds")
}

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

// Trap: batch elements built before the batch limit is looked at.
func TestGuardBatchIsCutWhileItIsRead(t *testing.T) {
	s := newIntakeServer(t, nil)
	resp, err := http.Post("http://"+s.addr, "application/json", strings.NewReader("["+strings.Repeat("0,", 1_000_000)+"0]"))
	require.NoError(t, err)
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Contains(t, string(raw), "batch too large")
	require.EqualValues(t, budgetStep, s.g.body.stats().High, "no more of it is kept than is needed to know")
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

// Trap: a deadline left armed after the body kills slow methods; and the next
// request on the connection.
func TestGuardSlowMethodsAndKeepAliveAreUntouched(t *testing.T) {
	s := newIntakeServer(t, func(c *GuardConfig, _ *http.Server) { c.Body.Idle = 100 * time.Millisecond })
	client := &http.Client{Transport: new(http.Transport)}
	defer client.CloseIdleConnections()
	for range 3 {
		resp, a := post(t, client, "http://"+s.addr, `{"jsonrpc":"2.0","id":1,"method":"in_nap","params":[300]}`)
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, "rested", a.Result)
		time.Sleep(150 * time.Millisecond)
	}
	require.EqualValues(t, 1, s.g.conns.high.Load(), "one connection")
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
func (w *compressedWriter) Flush()                      { w.gz.Flush(); w.ResponseWriter.(http.Flusher).Flush() }
func (w *compressedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Trap: release skipped by a panic above the method's own recover.
func TestGuardPanicReturnsTheBytes(t *testing.T) {
	s := newIntakeServer(t, nil)
	s.http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.srv.ServeHTTP(panickyWriter{w}, r)
	})
	_, err := http.Post("http://"+s.addr, "application/json", strings.NewReader(intakeCall("len", 100_000)))
	require.Error(t, err)
	require.NotZero(t, s.g.body.stats().High)
	s.settles(t)
}

type panickyWriter struct{ http.ResponseWriter }

func (panickyWriter) Header() http.Header { panic(http.ErrAbortHandler) }

// Trap: what stock answers to odd requests depends on Content-Length, which must
// be hidden from its allocation only.
func TestGuardAnswersOddRequestsAsStock(t *testing.T) {
	guarded := newIntakeServer(t, nil)
	stock := newIntakeServer(t, nil)
	stock.srv.SetGuard(nil)
	type result struct {
		status int
		body   string
		header http.Header
	}
	try := func(s *intakeServer, method, ctype, body string, chunked bool) result {
		var rd io.Reader = strings.NewReader(body)
		if chunked {
			rd = io.MultiReader(rd)
		}
		req, err := http.NewRequest(method, "http://"+s.addr, rd)
		require.NoError(t, err)
		if ctype != "" {
			req.Header.Set("Content-Type", ctype)
		}
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		out, _ := io.ReadAll(resp.Body)
		resp.Header.Del("Date")
		if n := len(out); n > 0 && out[n-1] == '\n' { // up to v1.17.3 replies end so
			out = out[:n-1]
			resp.Header.Set("Content-Length", strconv.Itoa(len(out)))
		}
		return result{resp.StatusCode, string(out), resp.Header}
	}
	length := func(r result) int { n, _ := strconv.Atoi(r.header.Get("Content-Length")); return n }
	resp, err := http.Post("http://"+stock.addr, "application/json", strings.NewReader(intakeCall("len", 100)))
	require.NoError(t, err)
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	lineFeed := strings.HasSuffix(string(text), "\n")
	tooMany := "[" + strings.Repeat("0,", 50) + "0]"
	for _, method := range []string{"GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "HEAD"} {
		for _, ctype := range []string{"", "application/json", "text/plain", "application/json; charset=utf-8"} {
			for _, body := range []string{"", " ", intakeCall("len", 100), "{", "[]", "null", `[{"id":7},1]`, tooMany, "\xff"} {
				for _, chunked := range []bool{false, true} {
					want, got := try(stock, method, ctype, body, chunked), try(guarded, method, ctype, body, chunked)
					if method == "HEAD" && lineFeed && want.header.Get("Content-Length") == fmt.Sprint(1+length(got)) {
						want.header = got.header // a length tells not what it counts
					}
					require.Equal(t, want, got, "%s %q %q %v", method, ctype, body, chunked)
				}
			}
		}
	}
	require.Zero(t, guarded.g.bodyBooks.tooLarge.Load())
}

// Trap: over h2c each stream is timed and refused by itself.
func TestGuardH2StreamsAreRefusedAlone(t *testing.T) {
	s := newIntakeServer(t, func(c *GuardConfig, _ *http.Server) { c.Body.Idle = 200 * time.Millisecond })
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr}
	post(t, client, "http://"+s.addr, intakeCall("len", 10))

	long := make(chan rpcAnswer, 1)
	go func() {
		_, a := post(t, client, "http://"+s.addr, `{"jsonrpc":"2.0","id":1,"method":"in_nap","params":[1000]}`)
		long <- a
	}()
	pr, pw := io.Pipe()
	defer pw.Close()
	go pw.Write([]byte(" "))
	req, _ := http.NewRequest("POST", "http://"+s.addr, pr)
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	require.NoError(t, err)
	require.Equal(t, 408, resp.StatusCode)
	require.Empty(t, resp.Header.Get("Connection"))
	resp.Body.Close()
	resp, _ = post(t, client, "http://"+s.addr, intakeCall("len", 6<<20))
	require.Equal(t, 413, resp.StatusCode)
	require.Equal(t, "rested", (<-long).Result)
	_, a := post(t, client, "http://"+s.addr, intakeCall("len", 10))
	require.NotNil(t, a.Result)
	require.EqualValues(t, 1, s.g.conns.high.Load(), "one connection for all")
}

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

func TestGuardTrustedBodiesAreNotCharged(t *testing.T) {
	s := newIntakeServer(t, func(c *GuardConfig, _ *http.Server) { c.Body.Idle = 50 * time.Millisecond })
	s.srv.SetGuard(s.g.Trusted())
	pr, pw := io.Pipe()
	go func() {
		io.WriteString(pw, intakeCall("len", 100_000)[:50_000])
		time.Sleep(200 * time.Millisecond)
		io.WriteString(pw, intakeCall("len", 100_000)[50_000:])
		pw.Close()
	}()
	resp, err := http.Post("http://"+s.addr, "application/json", pr)
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, 200, resp.StatusCode)
	require.Zero(t, s.g.body.stats().High)
}

// Large bodies are parsed by so many at a time that a processor is left for others,
// and a method that runs holds no slot.
func TestGuardLargeBodiesAreParsedInTurn(t *testing.T) {
	s := newIntakeServer(t, nil)
	require.Equal(t, 1, cap(s.g.parsing))
	s.g.parsing <- struct{}{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		post(t, new(http.Client), "http://"+s.addr, intakeCall("hold", 100_000))
	}()
	post(t, new(http.Client), "http://"+s.addr, intakeCall("len", 1000))
	require.Zero(t, s.reached.Load(), "only large ones wait")
	<-s.g.parsing
	require.Eventually(t, func() bool { return s.reached.Load() == 1 }, 5*time.Second, time.Millisecond)
	require.Empty(t, s.g.parsing)
	post(t, new(http.Client), "http://"+s.addr, intakeCall("len", 100_000))
	close(s.gate)
	<-done
	for _, body := range []string{strings.Repeat("[", 100_000), "[" + strings.Repeat(" ", 100_000) + "]"} {
		resp, err := http.Post("http://"+s.addr, "application/json", strings.NewReader(body))
		require.NoError(t, err)
		resp.Body.Close()
	}
	require.Eventually(t, func() bool { return len(s.g.parsing) == 0 }, time.Second, time.Millisecond)
}

func TestGuardBodyMetricsArePublished(t *testing.T) {
	published := func() int {
		publishIntake.mu.Lock()
		defer publishIntake.mu.Unlock()
		return len(publishIntake.of)
	}
	before := published()
	s := newIntakeServer(t, nil)
	s.g.PublishMetrics()
	require.Equal(t, before+1, published(), "once: guards are added up, and twice would double every figure")
	r := metrics.NewRegistry()
	updateIntakeMetrics(r)
	for _, g := range s.g.intakeGauges() {
		require.NotNil(t, r.Get(g.name), g.name)
		require.Regexp(t, "^[a-z0-9_/]+$", g.name)
	}
}

func TestGuardDryRunRefusesNothing(t *testing.T) {
	s := newIntakeServer(t, func(c *GuardConfig, _ *http.Server) {
		c.DryRun = true
		c.Body.Idle = 50 * time.Millisecond
		c.Conn.Max, c.Conn.MaxPerClient = 1, 1
		c.Client.Local = true
	})
	full := s.g.body.open(budgetKey(1), nil)
	require.NoError(t, full.grow(s.g.body.limit))
	defer full.close()
	pr, pw := io.Pipe()
	go func() {
		io.WriteString(pw, intakeCall("len", 100_000)[:50_000])
		time.Sleep(200 * time.Millisecond)
		io.WriteString(pw, intakeCall("len", 100_000)[50_000:])
		pw.Close()
	}()
	idle, err := net.Dial("tcp", s.addr)
	require.NoError(t, err)
	defer idle.Close()
	resp, err := http.Post("http://"+s.addr, "application/json", pr)
	require.NoError(t, err)
	resp.Body.Close()
	require.Equal(t, 200, resp.StatusCode)
	require.EqualValues(t, 1, s.g.body.stats().Refused)
	require.EqualValues(t, 1, s.g.bodyBooks.idle.Load())
	require.NotZero(t, s.g.conns.refused.Load())
}

// A guard's budget for bodies knows a stop when it sees one.
func TestGuardStoppedBodyLosesToAnybody(t *testing.T) {
	clock := new(mclock.Simulated)
	cfg := DefaultGuardConfig
	cfg.Body.Budget = 64 << 20
	b, err := cfg.newBodyBudget(GuardEnv{HTTPBodyLimit: 5 << 20}, clock)
	require.NoError(t, err)
	part, gone := b.largeLimit/24, 0
	for i := range 24 {
		c := b.open(budgetKey(i+1), func() { gone++ })
		require.NoError(t, c.grow(part/2))
		require.NoError(t, c.grow(part/2))
	}
	require.Error(t, b.open(budgetKey(0), nil).grow(part))
	clock.Run(2 * bodyPause)
	require.NoError(t, b.open(budgetKey(0), nil).grow(part))
	require.Equal(t, 1, gone)
}
