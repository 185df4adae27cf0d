// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

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
		ended := make(chan struct{})
		go r.srv.ServeListener(endListener{l, ended})
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		io.WriteString(conn, call(1, "test_wait"))
		r.begun(1)
		conn.(*net.TCPConn).CloseWrite()
		<-ended
		r.post(call(2, "rpc_modules")) // some time for whoever takes the end for a departure
		r.slow.finish <- struct{}{}
		conn.SetReadDeadline(time.Now().Add(30 * time.Second))
		if reply, err := io.ReadAll(conn); err != nil || !bytes.Contains(reply, []byte(`"result":null`)) {
			t.Errorf("reply %q, %v", reply, err)
		}
	}
}

// endListener's connections say when the server has read the end of what their client sends.
type endListener struct {
	net.Listener
	ended chan struct{}
}

func (l endListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return endConn{conn, l.ended}, err
}

type endConn struct {
	net.Conn
	ended chan struct{}
}

func (c endConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == io.EOF {
		close(c.ended)
	}
	return n, err
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
	r.end(1)
	trusted.until("all ended", func() bool {
		select { // a subscription may take what ends a call, so there is more of it
		case trusted.slow.finish <- struct{}{}:
		default:
		}
		return r.g.admission.trusted.total().Served == 9+3
	})
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
