// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
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

const refusalText = `"error":{"code":-32013,"message":"Request queue is full"}`

// TestGuardExactRefusals is attack 18: 30 calls at once from one client against 10
// permits and 6 places.
func TestGuardExactRefusals(t *testing.T) {
	r := newGuardRig(t, func(c *GuardConfig) {
		c.Admission.Concurrency, c.Admission.Queue, c.Admission.CPU = 10, 6, 10
	})
	var wg sync.WaitGroup
	var refused atomic.Int64
	for i := range 30 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			status, reply := r.post(call(i, "test_compute"))
			switch {
			case status == 429 && strings.Contains(reply, refusalText):
				refused.Add(1)
			case status != 200 || !strings.Contains(reply, `"result":null`):
				t.Errorf("status %d, reply %s", status, reply)
			}
		}()
	}
	r.begun(10)
	r.until("14 refused", func() bool { return refused.Load() == 14 })
	r.waiting(6)
	for _, c := range (&GuardAPI{r.g}).RpcCalls() {
		if c.Method != "test_compute" || c.Class != "compute" || c.Client != "127.0.0.1" {
			t.Errorf("in the dump: %+v", c)
		}
	}
	r.end(16)
	wg.Wait()
	if b := r.idle()["compute"]; b.Arrived != 30 || b.Served != 16 || b.Refused["full"] != 14 {
		t.Errorf("books: %+v", b)
	}
	if most := r.slow.most.Load(); most != 10 {
		t.Errorf("%d calls executed at once", most)
	}
}

// TestGuardHeavyShare is attack 19: heavy calls take their share of the queue and
// nothing of what ordinary calls need.
func TestTrapHeavyCallsAgainstTheOrdinaryQueue(t *testing.T) {
	r := newGuardRig(t, func(c *GuardConfig) {
		c.Admission.Concurrency, c.Admission.Queue = 4, 8
	})
	conn := r.dial()
	for i := range 12 {
		r.send(conn, call(i, "test_heavy"))
	}
	r.begun(1)
	for range 9 {
		if reply := r.receive(conn); !strings.Contains(reply, refusalText) {
			t.Fatalf("reply %s", reply)
		}
	}
	if s := r.g.admission.gate.snapshot(); s.held[permitHeavy] != 1 || s.held[permitExec] != 1 || s.queued != 2 {
		t.Fatalf("waiting heavy calls hold something: %+v", s)
	}
	if status, reply := r.post(`{"jsonrpc":"2.0","id":1,"method":"test_echo","params":["x"]}`); status != 200 || !strings.Contains(reply, `"x"`) {
		t.Fatalf("an ordinary call: status %d, reply %s", status, reply)
	}
	r.end(3)
	r.idle()
}

// A limit on calls is no limit on processors: with every one of them in a loop a trivial
// request takes 144 ms instead of 3. Whatever compute and heavy calls are offered, one
// processor is left as long as there are two.
func TestTrapEveryProcessorInALoop(t *testing.T) {
	for procs, want := range map[int]permitCounts{
		1: {permitExec: 1, permitCPU: 1, permitHeavy: 1},
		2: {permitExec: 1, permitCPU: 1, permitHeavy: 1},
		8: {permitExec: 7, permitCPU: 7, permitHeavy: 4},
	} {
		env := testGuardEnv
		env.Procs = procs
		g, err := NewGuard(DefaultGuardConfig, env)
		if err != nil {
			t.Fatal(err)
		}
		gate := g.admission.gate
		calls := make([]gateCall, 60)
		for i := range calls {
			calls[i] = gateCall{class: []callClass{classHeavy, classCompute}[i%2], key: rigKey(i)}
			gate.arrive(&calls[i])
		}
		if s := gate.snapshot(); s.held != want {
			t.Errorf("%d processors: %v held, want %v", procs, s.held, want)
		}
	}
}

// The gauge of heavy calls counts whoever holds a permit, and who waits for one holds no
// other: neither a place among those that execute nor a processor.
func TestTrapHeavyWaiterSitsOnASlot(t *testing.T) {
	r := newGateRig(t, gateLimits{3, 9, 2, 1, 1})
	for range 3 {
		r.arrive(0, classHeavy, time.Hour)
	}
	want := permitCounts{permitExec: 1, permitCPU: 1, permitHeavy: 1}
	if s := r.g.snapshot(); s.held != want || s.highHeld != want || s.waiting[classHeavy] != 2 {
		t.Fatalf("one heavy call executes, two wait: %+v", s)
	}
	r.arrive(1, classCompute, time.Hour)
	r.arrive(1, classNormal, time.Hour)
	want = permitCounts{permitExec: 3, permitCPU: 2, permitHeavy: 1}
	if s := r.g.snapshot(); s.held != want || s.queued != 2 {
		t.Errorf("the others were kept waiting: %+v", s)
	}
	r.check()
}

// A batch keeps order, shape and ids, and each entry is admitted by itself.
func TestGuardBatchEntriesRefusedOneByOne(t *testing.T) {
	r := newGuardRig(t, func(c *GuardConfig) {
		c.Admission.Concurrency, c.Admission.Queue = 1, 0
	})
	blocker := r.dial()
	r.send(blocker, call(1, "test_wait"))
	r.begun(1)
	status, reply := r.post(`[` + call(1, "test_fail") + `,` + call(2, "net_unknown") + `,` + call(3, "rpc_modules") + `,` +
		`{"jsonrpc":"2.0","method":"test_fail"},` + call(4, "test_fail") + `]`)
	var entries []struct {
		ID     int
		Error  *jsonError
		Result any
	}
	if err := json.Unmarshal([]byte(reply), &entries); err != nil || status != 200 || len(entries) != 4 {
		t.Fatalf("status %d, reply %s", status, reply)
	}
	for i, code := range []int{-32013, -32601, 0, -32013} {
		e := entries[i]
		if e.ID != i+1 || (e.Error == nil) != (code == 0) || e.Error != nil && e.Error.Code != code {
			t.Errorf("entry %d: %+v %+v", i, e, e.Error)
		}
	}
	r.end(1)
	books := r.idle()
	if b := books["normal"]; b.Arrived != 4 || b.Refused["full"] != 3 || b.Served != 1 {
		t.Errorf("normal: %+v", b) // the notification is counted, the unknown method is not
	}
	if b := books["light"]; b.Arrived != 1 || b.Served != 1 {
		t.Errorf("light: %+v", b)
	}
}

// The permit must outlast the answer that says the time is up.
func TestTrapPermitGivenBackAtTheTimeoutAnswer(t *testing.T) {
	r := newTimedGuardRig(t, 300*time.Millisecond, nil)
	status, reply := r.post(call(1, "test_deaf"))
	if status != 200 || !strings.Contains(reply, "-32002") {
		t.Fatalf("status %d, reply %s", status, reply)
	}
	if s := r.g.admission.gate.snapshot(); s.held[permitExec] != 1 {
		t.Fatalf("the method runs on, %d permits held", s.held[permitExec])
	}
	r.begun(1)
	r.end(1)
	if b := r.idle()["normal"]; b.Failed != 1 {
		t.Errorf("books: %+v", b)
	}
}

// The permit must not be held while the reply drains.
func TestTrapPermitHeldWhileTheReplyDrains(t *testing.T) {
	r := newGuardRig(t, nil)
	client, server := net.Pipe()
	defer client.Close()
	inner := &stuckWriter{NewCodec(server), make(chan struct{}), make(chan struct{})}
	go r.srv.ServeCodec(inner, 0)
	io.WriteString(client, `{"jsonrpc":"2.0","id":1,"method":"test_echo","params":["x"]}`)
	<-inner.writing
	if s := r.g.admission.gate.snapshot(); s.held != (permitCounts{}) {
		t.Fatalf("held during the write: %+v", s.held)
	}
	close(inner.free)
	io.ReadFull(client, make([]byte, 10))
}

// A client that leaves frees its places, and what it had waiting never runs.
func TestTrapWaitingCallsOfGoneClientsRun(t *testing.T) {
	for _, message := range []string{
		call(2, "test_wait"),
		`[` + call(2, "test_wait") + `,` + call(3, "test_wait") + `]`,
	} {
		r := newGuardRig(t, func(c *GuardConfig) { c.Admission.Concurrency = 1 })
		blocker, leaver := r.dial(), r.dial()
		r.send(blocker, call(1, "test_wait"))
		r.begun(1)
		r.send(leaver, message)
		r.send(leaver, message)
		r.waiting(2)
		reset(leaver.UnderlyingConn().(*net.TCPConn))
		r.waiting(0)
		r.end(1)
		if b := r.idle()["normal"]; b.Arrived != 3 || b.Served != 1 || b.Cancelled != 2 {
			t.Errorf("books: %+v", b)
		}
		if n := r.slow.ended.Load(); n != 1 {
			t.Errorf("%d methods ran", n)
		}
	}
}

// A call is cancelled when its WebSocket goes, as over HTTP (attack 11), and the rest
// of its batch is not begun (attack 41).
func TestGuardAbandonedCallsAreCancelled(t *testing.T) {
	for _, trusted := range []bool{false, true} {
		r := newGuardRig(t, nil)
		if trusted {
			r = serveRig(t, r.g.Trusted())
		}
		conn := r.dial()
		r.send(conn, call(1, "test_wait"))
		r.send(conn, `[`+call(2, "test_wait")+`,`+call(3, "test_wait")+`]`)
		r.begun(2)
		reset(conn.UnderlyingConn().(*net.TCPConn))
		r.until("cancelled", func() bool { return r.slow.running.Load() == 0 })
		r.until("counted", func() bool {
			if trusted {
				return r.idle()["trusted"].Cancelled == 2
			}
			return r.idle()["normal"].Cancelled == 2
		})
		if n := r.slow.ended.Load(); n != 2 {
			t.Errorf("trusted %v: %d methods ran", trusted, n)
		}
	}
}

// A raw stream that its client has closed in one direction still gets its answers:
// `echo ... | nc -U geth.ipc` does just that.
func TestTrapHalfClosedIPCTakenForAClientThatLeft(t *testing.T) {
	r := newGuardRig(t, nil)
	for _, g := range []*Guard{r.g, r.g.Trusted()} {
		r := serveRig(t, g)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go r.srv.ServeListener(l)
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		io.WriteString(conn, call(1, "test_wait"))
		r.begun(1)
		conn.(*net.TCPConn).CloseWrite()
		r.slow.finish <- struct{}{}
		conn.SetReadDeadline(time.Now().Add(30 * time.Second))
		if reply, err := io.ReadAll(conn); err != nil || !bytes.Contains(reply, []byte(`"result":null`)) {
			t.Errorf("reply %q, %v", reply, err)
		}
	}
}

// A subscription must outlive the wait bound, and the permit, of the call that made it.
func TestTrapSubscriptionDiesWithItsRequest(t *testing.T) {
	r := newGuardRig(t, func(c *GuardConfig) { c.Admission.Wait = time.Millisecond })
	conn := r.dial()
	r.send(conn, `{"jsonrpc":"2.0","id":1,"method":"test_subscribe","params":["ticks"]}`)
	if reply := r.receive(conn); !strings.Contains(reply, `"result":"0x`) {
		t.Fatalf("reply %s", reply)
	}
	r.idle()
	time.Sleep(5 * time.Millisecond) // past the bound
	r.end(1)
	if reply := r.receive(conn); !strings.Contains(reply, "tick") {
		t.Fatalf("notification %s", reply)
	}
	close(r.slow.finish)
}

// Work that goes on after its method returned keeps the permit.
func TestGuardPermitOfBackgroundWork(t *testing.T) {
	r := newGuardRig(t, nil)
	if _, reply := r.post(call(1, "test_background")); !strings.Contains(reply, `"result":null`) {
		t.Fatalf("reply %s", reply)
	}
	if s := r.g.admission.gate.snapshot(); s.held[permitHeavy] != 1 {
		t.Fatalf("held: %+v", s.held)
	}
	r.end(1)
	if b := r.idle()["heavy"]; b.Served != 1 {
		t.Errorf("books: %+v", b)
	}
}

// A method that crashes gives its permit back.
func TestGuardCrashReturnsThePermit(t *testing.T) {
	r := newGuardRig(t, nil)
	if _, reply := r.post(call(1, "test_crash")); !strings.Contains(reply, "crashed") {
		t.Fatalf("reply %s", reply)
	}
	if b := r.idle()["normal"]; b.Failed != 1 {
		t.Errorf("books: %+v", b)
	}
}

// Methods nobody knows are refused as upstream does it and leave no trace.
func TestTrapMethodNamesChosenByClients(t *testing.T) {
	r := newGuardRig(t, nil)
	for i := range 100 {
		if _, reply := r.post(call(1, fmt.Sprintf("eth_nonsense%d", i))); !strings.Contains(reply, "-32601") {
			t.Fatalf("reply %s", reply)
		}
	}
	for class, b := range r.idle() {
		if b.Arrived != 0 {
			t.Errorf("%s: %+v", class, b)
		}
	}
}

// Refused calls stay out of the statistics of those that ran.
func TestTrapRefusedCallsCountedIntoDuration(t *testing.T) {
	r := newGuardRig(t, func(c *GuardConfig) { c.Admission.Concurrency, c.Admission.Queue = 1, 0 })
	conn := r.dial()
	r.send(conn, call(1, "test_wait"))
	r.begun(1)
	before := rpcRequestGauge.Snapshot().Value()
	for range 50 {
		if status, _ := r.post(call(1, "test_fail")); status != 429 {
			t.Fatalf("status %d", status)
		}
	}
	if after := rpcRequestGauge.Snapshot().Value(); after != before {
		t.Errorf("%d refused calls counted as served", after-before)
	}
	r.end(1)
	r.idle()
}

// An id over 1 KiB is an invalid request on both transports.
func TestGuardOversizedID(t *testing.T) {
	r := newGuardRig(t, nil)
	const want = `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"id too long"}}`
	message := func(n int) string {
		return `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", n-2) + `","method":"test_fail"}`
	}
	if _, reply := r.post(message(maxIDLength + 1)); reply != want {
		t.Errorf("HTTP: %.200s", reply)
	}
	if _, reply := r.post(`[` + message(5000) + `]`); reply != `[`+want+`]` {
		t.Errorf("batch: %.200s", reply)
	}
	conn := r.dial()
	r.send(conn, message(1<<20))
	if reply := r.receive(conn); reply != want {
		t.Errorf("WebSocket: %.200s", reply)
	}
	// What is no call at all is not echoed either.
	const invalid = `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"invalid request"}}`
	noCall := `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 1<<20) + `"}`
	if _, reply := r.post(noCall); reply != invalid {
		t.Errorf("no call, HTTP: %.200s", reply)
	}
	if _, reply := r.post(`[` + noCall + `,` + call(1, "test_fail") + `]`); !strings.HasPrefix(reply, `[`+invalid+`,{"jsonrpc":"2.0","id":1,`) {
		t.Errorf("no call, batch: %.200s", reply)
	}
	r.send(conn, noCall)
	if reply := r.receive(conn); reply != invalid {
		t.Errorf("no call, WebSocket: %.200s", reply)
	}
	tooMany := `[` + message(1<<20) + strings.Repeat(`,`+call(1, "test_fail"), 1000) + `]`
	if _, reply := r.post(tooMany); strings.Contains(reply, "xxx") || !strings.Contains(reply, "batch too large") {
		t.Errorf("batch over the limit: %.200s", reply)
	}
	if _, reply := r.post(message(maxIDLength)); !strings.Contains(reply, "xxx") {
		t.Errorf("an id of 1 KiB: %.200s", reply)
	}
	if _, reply := r.post(`{"jsonrpc":"2.0","id":null,"method":"test_echo","params":["x"]}`); !strings.Contains(reply, `"result":"x"`) {
		t.Errorf("a null id: %.200s", reply)
	}
	r.idle()
}

// Everything is counted as if refused in a dry run, and nothing is.
func TestGuardDryRun(t *testing.T) {
	r := newGuardRig(t, func(c *GuardConfig) {
		c.DryRun = true
		c.Admission.Concurrency, c.Admission.Queue = 2, 3
	})
	conn := r.dial()
	for i := range 9 {
		r.send(conn, call(i, "test_wait"))
	}
	r.begun(9)
	if s := r.g.admission.gate.snapshot(); s.held[permitExec] != 2 || s.queued != 3 {
		t.Errorf("as if: %+v", s)
	}
	r.end(9)
	for range 9 {
		if reply := r.receive(conn); !strings.Contains(reply, `"result":null`) {
			t.Errorf("reply %s", reply)
		}
	}
	if b := r.idle()["normal"]; b.Arrived != 9 || b.Served != 5 || b.Refused["full"] != 4 {
		t.Errorf("books: %+v", b)
	}
}

// New limits must not break the consensus client: its batches, its log queries and its
// WebSocket pass a gate that has nothing left, with more in flight and more
// subscriptions than others may have.
func TestTrapLimitsBreakTheConsensusClient(t *testing.T) {
	r := newGuardRig(t, func(c *GuardConfig) {
		c.Admission.Concurrency, c.Admission.Queue, c.Admission.InFlight = 1, 0, 4
		c.Sub.Max = 2
	})
	trusted := serveRig(t, r.g.Trusted())
	conn := r.dial()
	r.send(conn, call(1, "test_wait"))
	r.begun(1)
	if status, _ := r.post(call(1, "test_fail")); status != 429 {
		t.Fatalf("the public server: status %d", status)
	}
	batch := `[` + strings.TrimSuffix(strings.Repeat(call(1, "test_fail")+`,`, 900), ",") + `]`
	if status, reply := trusted.post(batch); status != 200 || strings.Contains(reply, "-32013") || strings.Count(reply, "failed") != 900 {
		t.Errorf("a trusted server: status %d, reply %.100s", status, reply)
	}
	// eth_getLogs over everything is a heavy call, of which nobody else would run one.
	if class := r.g.admission.classes.classify("eth_getLogs", []byte(`[{"fromBlock":"earliest"}]`)); class != classHeavy {
		t.Fatalf("class %v", class)
	}
	trustedConn := trusted.dial()
	for i := range 9 {
		trusted.send(trustedConn, call(i, "test_heavy"))
	}
	trusted.begun(9)
	for i := range 3 {
		trusted.send(trustedConn, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"test_subscribe","params":["ticks"]}`, 100+i))
		if reply := trusted.receive(trustedConn); !strings.Contains(reply, `"result":"0x`) {
			t.Errorf("subscription %d: %s", i, reply)
		}
	}
	trusted.end(9)
	r.end(1)
	trusted.until("all ended", func() bool { return r.g.admission.trusted.total().Served == 9+3 })
	if b := r.idle()["trusted"]; b.Arrived != 900+9+3 || b.Failed != 900 {
		t.Errorf("books: %+v", b)
	}
}

// The console's and GraphQL's own calls need no permit while their caller holds one.
func TestTrapNestedCallNeedsASecondPermit(t *testing.T) {
	r := newGuardRig(t, func(c *GuardConfig) { c.Admission.Concurrency, c.Admission.Queue = 1, 0 })
	inner := serveRig(t, r.g.InProc())
	nested := DialInProc(inner.srv)
	defer nested.Close()
	if err := r.srv.RegisterName("outer", &nestedService{nested}); err != nil {
		t.Fatal(err)
	}
	if status, reply := r.post(call(1, "outer_ask")); status != 200 || !strings.Contains(reply, `"result":"x"`) {
		t.Fatalf("status %d, reply %s", status, reply)
	}
	r.idle()
}

type nestedService struct{ client *Client }

func (s *nestedService) Ask(ctx context.Context) (x string, err error) {
	err = s.client.CallContext(ctx, &x, "test_echo", "x")
	return x, err
}

// A batch has one wait bound for all its entries.
func TestGuardBatchWaitsOnce(t *testing.T) {
	r := newGuardRig(t, func(c *GuardConfig) {
		c.Admission.Concurrency, c.Admission.Wait = 1, 200*time.Millisecond
	})
	conn := r.dial()
	r.send(conn, call(1, "test_wait"))
	r.begun(1)
	start := time.Now()
	_, reply := r.post(`[` + strings.TrimSuffix(strings.Repeat(call(1, "test_fail")+`,`, 50), ",") + `]`)
	if n := strings.Count(reply, refusalText); n != 50 {
		t.Fatalf("%d refused: %s", n, reply)
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("50 entries waited %v, one may 200 ms", d)
	}
	r.end(1)
	if b := r.idle()["normal"]; b.Refused["expired"] != 50 {
		t.Errorf("books: %+v", b)
	}
}

// Waiting never takes more than half of what the request has left.
func TestGuardWaitsHalfOfTheRequestsTime(t *testing.T) {
	r := newTimedGuardRig(t, time.Second, func(c *GuardConfig) { c.Admission.Concurrency = 1 })
	conn := r.dial()
	r.send(conn, call(1, "test_wait"))
	r.begun(1)
	status, reply := r.post(call(2, "test_fail"))
	if status != 429 || !strings.Contains(reply, refusalText) {
		t.Errorf("status %d, reply %s", status, reply)
	}
	r.end(1)
	r.idle()
}

func TestGuardRefusalStatusAndCode(t *testing.T) {
	for _, status := range []int{200, 429, 503} {
		r := newGuardRig(t, func(c *GuardConfig) {
			c.Admission.Concurrency, c.Admission.Queue = 1, 0
			c.Admission.Status, c.Admission.Code = status, -32005
		})
		conn := r.dial()
		r.send(conn, call(1, "test_wait"))
		r.begun(1)
		for range 2 {
			got, reply := r.post(call(7, "test_fail"))
			if got != status || reply != `{"jsonrpc":"2.0","id":7,"error":{"code":-32005,"message":"Request queue is full"}}` {
				t.Errorf("status %d, reply %s", got, reply)
			}
		}
		r.end(1)
		r.idle()
	}
}

// TestGuardResize is attack 20, through the admin call.
func TestGuardResize(t *testing.T) {
	r := newGuardRig(t, func(c *GuardConfig) { c.Admission.Concurrency = 4 })
	api := &GuardAPI{r.g}
	conn := r.dial()
	for i := range 7 {
		r.send(conn, call(i, "test_wait"))
	}
	r.begun(4)
	r.waiting(3)
	one, zero := 1, 0
	if _, err := api.SetConcurrencyLimit(&ConcurrencyLimitArgs{MaxConcurrent: &zero}); err == nil || !strings.Contains(err.Error(), "turn the guard off") {
		t.Errorf("0 concurrency: error %v", err)
	}
	if l, err := api.SetConcurrencyLimit(&ConcurrencyLimitArgs{MaxConcurrent: &one}); err != nil ||
		l.ExecutingRequests != 4 || l.MaxConcurrent != 1 || l.QueuedRequests != 3 {
		t.Errorf("shrunk: %+v, %v", l, err)
	}
	r.end(3)
	for range 3 {
		r.receive(conn)
	}
	if l := api.GetConcurrencyLimit(); l.ExecutingRequests != 1 || l.QueuedRequests != 3 {
		t.Errorf("after three ended: %+v", l)
	}
	status, err := json.Marshal(api.RpcStatus())
	if err != nil || !bytes.Contains(status, []byte(`"maxConcurrent":1`)) || !bytes.Contains(status, []byte(`"body/inuse":`)) {
		t.Errorf("status %s, %v", status, err)
	}
	four := 4
	if l, _ := api.SetConcurrencyLimit(&ConcurrencyLimitArgs{MaxConcurrent: &four}); l.ExecutingRequests != 4 {
		t.Errorf("grown: %+v", l)
	}
	r.begun(3)
	r.end(4)
	r.idle()
}

// A flood of pings is read no faster than anybody needs them (attack 48), and the calls
// of a client that pings at an ordinary rate are not held up.
func TestGuardPingFloodIsPaced(t *testing.T) {
	r := newGuardRig(t, nil)
	conn := r.dial()
	var pongs atomic.Int64
	conn.SetPongHandler(func(string) error { pongs.Add(1); return nil })
	ping := func(n int) {
		for range n {
			conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(time.Second))
		}
	}
	start := time.Now()
	ping(controlBurst)
	r.send(conn, call(1, "test_fail"))
	r.receive(conn)
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("a call behind %d pings took %v", controlBurst, d)
	}
	start = time.Now()
	ping(controlRate)
	r.send(conn, call(2, "test_fail"))
	r.receive(conn)
	if d := time.Since(start); d < time.Second/2 {
		t.Errorf("%d more pings took %v", controlRate, d)
	}
}

// A connection with all its slots taken and as much read ahead as may be is not read any
// more. A client that leaves then is seen all the same, whether it resets the connection
// or closes it behind what nobody reads.
func TestGuardHangUpOfAPausedConnection(t *testing.T) {
	const slots = 3
	for _, how := range []string{"reset", "close"} {
		r := newGuardRig(t, func(c *GuardConfig) { c.Admission.InFlight = slots })
		conn := r.dial()
		for i := range slots + streamAheadMessages + 50 {
			r.send(conn, call(i, "test_wait"))
		}
		r.begun(slots)
		time.Sleep(2 * hangUpInterval)
		if n := r.slow.running.Load(); n != slots {
			t.Errorf("%d calls in flight, want %d", n, slots)
		}
		if b := r.g.admission.report().Books["normal"]; b.Arrived != slots {
			t.Errorf("%d calls arrived", b.Arrived)
		}
		tcp := conn.UnderlyingConn().(*net.TCPConn)
		if how == "reset" {
			tcp.SetLinger(0)
		}
		left := time.Now()
		tcp.Close()
		r.until("cancelled", func() bool { return r.slow.running.Load() == 0 })
		if d := time.Since(left); d > 5*time.Second {
			t.Errorf("%s: noticed after %v", how, d)
		}
		// A slot that a cancelled call gives back may let a message arrive that was
		// read ahead; it finds its client gone and does not run.
		if b := r.idle()["normal"]; b.Cancelled != b.Arrived || b.Arrived < slots || b.Arrived > 2*slots {
			t.Errorf("%s: books %+v", how, b)
		}
	}
}

// Slots are for messages with calls. What else a client sends takes none and leaks none,
// and what waits for a slot runs in order once there is one.
func TestGuardInFlightSlots(t *testing.T) {
	r := newGuardRig(t, func(c *GuardConfig) { c.Admission.InFlight = 2 })
	conn := r.dial()
	for range 50 {
		r.send(conn, `{"jsonrpc":"2.0","id":99,"result":"to nobody"}`)
		r.send(conn, `{"jsonrpc":"2.0","method":"test_subscription","params":{}}`)
		r.send(conn, `{"jsonrpc":"2.0","method":"test_fail"}`)
		r.send(conn, `[]`)
		r.receive(conn)
		r.send(conn, `7`)
		r.receive(conn)
	}
	r.send(conn, `[`+call(1, "test_wait")+`,`+call(2, "test_fail")+`]`)
	r.begun(1)
	r.send(conn, call(3, "test_wait"))
	r.begun(1)
	for i := range 20 {
		r.send(conn, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"test_echo","params":["x"]}`, 100+i))
	}
	r.end(1)
	for range 21 {
		r.receive(conn)
	}
	r.end(1)
	r.receive(conn)
	r.idle()
	r.until("slots free", func() bool {
		w := r.window(conn)
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.inFlight == 0 && w.high == 2
	})
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

// The status shows what polling filters use of their limit.
func TestGuardStatusShowsFilters(t *testing.T) {
	r := newGuardRig(t, func(c *GuardConfig) { c.Filter.Max, c.Filter.MaxPerClient = 2, 2 })
	status := (&GuardAPI{r.g}).RpcStatus
	for i := range 3 {
		if err := r.g.filters.reserve(rigKey(1), true); (err != nil) != (i == 2) {
			t.Fatalf("filter %d: %v", i, err)
		}
	}
	got := status().Filters
	if got["active"] != 2 || got["limit"] != 2 || got["limitPerClient"] != 2 || got["refused"] != 1 {
		t.Errorf("%v", got)
	}
	r.g.filters.unreserve(rigKey(1))
	r.g.filters.unreserve(rigKey(1))
	if got := status().Filters["active"]; got != 0 {
		t.Errorf("%d active", got)
	}
}
