// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"bytes"
	"encoding/json"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

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

// TestGuardOversizedIDInADryRun: it refuses nothing.
func TestGuardOversizedIDInADryRun(t *testing.T) {
	r := newGuardRig(t, func(c *GuardConfig) { c.DryRun = true })
	id := `"` + strings.Repeat("x", maxIDLength) + `"`
	message := `{"jsonrpc":"2.0","id":` + id + `,"method":"test_echo","params":["x"]}`
	want := `{"jsonrpc":"2.0","id":` + id + `,"result":"x"}`
	if _, reply := r.post(message); reply != want {
		t.Errorf("HTTP: %.200s", reply)
	}
	if _, reply := r.post(`[` + message + `]`); reply != `[`+want+`]` {
		t.Errorf("batch: %.200s", reply)
	}
	conn := r.dial()
	r.send(conn, message)
	if reply := r.receive(conn); reply != want {
		t.Errorf("WebSocket: %.200s", reply)
	}
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
