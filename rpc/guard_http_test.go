// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
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
