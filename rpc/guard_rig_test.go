// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// slowService has methods that end when the test says so.
type slowService struct {
	started chan string   // a method has begun
	finish  chan struct{} // each receive lets one method end
	ended   atomic.Int64
	running atomic.Int64
	most    atomic.Int64
}

func newSlowService() *slowService {
	return &slowService{started: make(chan string, 4096), finish: make(chan struct{})}
}

func (s *slowService) run(ctx context.Context, name string) error {
	n := s.running.Add(1)
	for {
		most := s.most.Load()
		if n <= most || s.most.CompareAndSwap(most, n) {
			break
		}
	}
	defer s.ended.Add(1)
	defer s.running.Add(-1)
	s.started <- name
	select {
	case <-s.finish:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Wait sleeps until it may end or is cancelled.
func (s *slowService) Wait(ctx context.Context) error { return s.run(ctx, "wait") }

// Compute does the same in another class.
func (s *slowService) Compute(ctx context.Context) error { return s.run(ctx, "compute") }

// Heavy does the same in another class.
func (s *slowService) Heavy(ctx context.Context) error { return s.run(ctx, "heavy") }

// Deaf does not notice that it is cancelled.
func (s *slowService) Deaf() { s.run(context.Background(), "deaf") }

// Echo returns its argument at once.
func (s *slowService) Echo(x string) string { return x }

// Fail returns an error at once.
func (s *slowService) Fail() error { return errors.New("failed") }

// Crash panics.
func (s *slowService) Crash() { panic("crash") }

// Background goes on after it has returned.
func (s *slowService) Background(ctx context.Context) {
	_, release, err := ContinueCall(ctx)
	if err != nil {
		panic(err)
	}
	go func() {
		<-s.finish
		release()
	}()
}

// Ticks is a subscription.
func (s *slowService) Ticks(ctx context.Context) (*Subscription, error) {
	notifier, ok := NotifierFromContext(ctx)
	if !ok {
		return nil, ErrNotificationsUnsupported
	}
	sub := notifier.CreateSubscription()
	go func() {
		for range s.finish {
			notifier.Notify(sub.ID, "tick")
		}
	}()
	return sub, nil
}

// guardRig is a server under a guard with its transports.
type guardRig struct {
	t    *testing.T
	g    *Guard
	srv  *Server
	slow *slowService
	http *httptest.Server
	ws   string
}

func newGuardRig(t *testing.T, change func(*GuardConfig)) *guardRig {
	t.Helper()
	return newTimedGuardRig(t, 0, change)
}

// newTimedGuardRig is newGuardRig with a time-out for HTTP answers.
func newTimedGuardRig(t *testing.T, writeTimeout time.Duration, change func(*GuardConfig)) *guardRig {
	t.Helper()
	cfg := DefaultGuardConfig
	cfg.Admission.CPU, cfg.Admission.Heavy = 1, 1
	cfg.Admission.Wait = time.Minute
	cfg.Admission.ComputeMethods = []string{"test_compute"}
	cfg.Admission.HeavyMethods = []string{"test_heavy", "test_background"}
	cfg.Client.Local = true
	if change != nil {
		change(&cfg)
	}
	g, err := NewGuard(cfg, GuardEnv{Procs: 2, HTTPBodyLimit: defaultBodyLimit})
	if err != nil {
		t.Fatal(err)
	}
	return serveRigFor(t, g, writeTimeout)
}

func serveRig(t *testing.T, g *Guard) *guardRig { return serveRigFor(t, g, 0) }

// serveRigFor is serveRig with a time-out for HTTP answers; 0 is none.
func serveRigFor(t *testing.T, g *Guard, writeTimeout time.Duration) *guardRig {
	t.Helper()
	r := &guardRig{t: t, g: g, srv: newPlainServer(), slow: newSlowService()}
	r.srv.SetGuard(g)
	r.srv.SetBatchLimits(1000, 1<<20)
	if err := r.srv.RegisterName("test", r.slow); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", r.srv)
	mux.Handle("/ws", anyOrigin(r.srv))
	r.http = httptest.NewUnstartedServer(mux)
	r.http.Config.WriteTimeout = writeTimeout
	r.http.Start()
	r.ws = "ws" + strings.TrimPrefix(r.http.URL, "http") + "/ws"
	t.Cleanup(func() {
		r.srv.Stop()
		r.http.CloseClientConnections()
		r.http.Close()
	})
	return r
}

// post sends a body over HTTP and returns status and reply.
func (r *guardRig) post(body string) (int, string) {
	resp, err := http.Post(r.http.URL, "application/json", strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	reply, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, strings.TrimSpace(string(reply))
}

// dial opens a WebSocket without a client library behind it.
func (r *guardRig) dial() *websocket.Conn {
	r.t.Helper()
	conn, _, err := websocket.DefaultDialer.Dial(r.ws, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	return conn
}

func (r *guardRig) send(conn *websocket.Conn, text string) {
	r.t.Helper()
	if err := conn.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
		r.t.Fatal(err)
	}
}

func (r *guardRig) receive(conn *websocket.Conn) string {
	r.t.Helper()
	conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	_, text, err := conn.ReadMessage()
	if err != nil {
		r.t.Fatal(err)
	}
	return string(text)
}

// reset closes a connection so that the server sees it though data is unread.
func reset(conn net.Conn) {
	conn.(*net.TCPConn).SetLinger(0)
	conn.Close()
}

// begun waits for n methods to have begun.
func (r *guardRig) begun(n int) {
	r.t.Helper()
	for range n {
		select {
		case <-r.slow.started:
		case <-time.After(30 * time.Second):
			r.t.Fatalf("no further call has begun: %+v", r.g.admission.gate.snapshot())
		}
	}
}

// end lets n methods end.
func (r *guardRig) end(n int) {
	for range n {
		r.slow.finish <- struct{}{}
	}
}

// until waits for a condition that the server brings about in its own time.
func (r *guardRig) until(what string, cond func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !cond(); {
		if time.Now().After(deadline) {
			r.t.Fatalf("never: %s: %+v", what, r.g.admission.report())
		}
		time.Sleep(time.Millisecond) // of a real server there is no other sign
	}
}

func (r *guardRig) waiting(n int) {
	r.t.Helper()
	r.until(fmt.Sprintf("%d wait", n), func() bool { return r.g.admission.gate.snapshot().queued == n })
}

// idle waits until nothing is held and checks that the books add up.
func (r *guardRig) idle() map[string]bookTotals {
	r.t.Helper()
	r.until("idle", func() bool {
		s := r.g.admission.gate.snapshot()
		return s.held == permitCounts{} && s.queued == 0 && s.clients == 0
	})
	// A permit is given back a moment before its call is booked.
	var books map[string]bookTotals
	r.until("the books add up", func() bool {
		books = r.g.admission.report().Books
		for _, b := range books {
			if b.Arrived != b.Served+b.Failed+b.Cancelled+b.refusedSum() {
				return false
			}
		}
		return true
	})
	return books
}

func call(id int, method string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q}`, id, method)
}

// window finds the server's window of a connection.
func (r *guardRig) window(conn *websocket.Conn) *streamWindow {
	r.srv.mutex.Lock()
	defer r.srv.mutex.Unlock()
	for codec := range r.srv.codecs {
		if c, ok := codec.(*guardCodec); ok && c.peerInfo().RemoteAddr == conn.LocalAddr().String() {
			return c.reader.window
		}
	}
	r.t.Fatal("no such connection")
	return nil
}
