// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

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

// noticesLeaving has a client leave, by a reset or a close, and waits for its calls to end.
func (r *guardRig) noticesLeaving(conn *websocket.Conn, how string) {
	r.t.Helper()
	tcp := conn.UnderlyingConn().(*net.TCPConn)
	if how == "reset" {
		tcp.SetLinger(0)
	}
	left := time.Now()
	tcp.Close()
	r.until("cancelled", func() bool { return r.slow.running.Load() == 0 })
	if d := time.Since(left); d > 5*time.Second {
		r.t.Errorf("%s: noticed after %v", how, d)
	}
}

// Control frames are read slowly: a client that sent 40 s of them and leaves is seen to
// leave, whether it resets the connection or closes it.
func TestGuardHangUpBehindPongs(t *testing.T) {
	for _, how := range []string{"reset", "close"} {
		r := newGuardRig(t, nil)
		conn := r.dial()
		r.send(conn, call(1, "test_wait"))
		r.begun(1)
		for range controlBurst + 40*controlRate {
			conn.WriteControl(websocket.PongMessage, nil, time.Now().Add(time.Second))
		}
		r.noticesLeaving(conn, how)
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
		r.noticesLeaving(conn, how)
		// Slots that cancelled calls give back may let messages arrive that were read
		// ahead, until the window is told; they find their client gone and do not run.
		if b := r.idle()["normal"]; b.Cancelled != b.Arrived || b.Arrived < slots || b.Arrived > slots+streamAheadMessages {
			t.Errorf("%s: books %+v", how, b)
		}
	}
}

// What is no JSON ends a connection, but it is not its client's departure: calls before it
// are answered. If the client then leaves, that is seen although nobody reads.
func TestGuardNoJSONIsNoDeparture(t *testing.T) {
	r := newGuardRig(t, func(c *GuardConfig) { c.Admission.InFlight = 2 })
	conn := r.dial()
	for i := range 5 {
		r.send(conn, call(i, "test_wait"))
	}
	r.send(conn, `{bad`)
	for range 5 {
		r.begun(1)
		r.end(1)
	}
	results, errors := 0, 0
	for range 6 { // the error comes once the last message before it has begun
		a := r.receive(conn)
		results += strings.Count(a, `"result"`)
		errors += strings.Count(a, "-32700")
	}
	if results != 5 || errors != 1 {
		t.Fatalf("%d results, %d errors", results, errors)
	}
	if b := r.idle()["normal"]; b.Served != 5 {
		t.Errorf("books %+v", b)
	}

	conn = r.dial()
	r.send(conn, call(1, "test_wait"))
	r.begun(1)
	r.send(conn, `{bad`)
	r.receive(conn)
	conn.UnderlyingConn().Close()
	r.until("cancelled", func() bool { return r.slow.running.Load() == 0 })
	if b := r.idle()["normal"]; b.Cancelled != 1 {
		t.Errorf("books %+v", b)
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
