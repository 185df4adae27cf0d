// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// Every kind of result, on both transports, alone and in a batch, is what the server
// sends without a guard.
func TestGuardReplyBytesAsStock(t *testing.T) {
	stock := newPlainServer()
	stock.SetBatchLimits(1000, 1<<20)
	stock.RegisterName("bulk", new(bulkService))
	r := newBulkRig(t, nil)
	plain := &guardRig{t: t, srv: stock}
	mux := http.NewServeMux()
	mux.Handle("/", stock)
	mux.Handle("/ws", anyOrigin(stock))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: mux}
	go server.Serve(ln)
	defer func() { stock.Stop(); server.Close() }()
	plain.ws = "ws://" + ln.Addr().String() + "/ws"

	ours, theirs := r.dial(), plain.dial()
	small, list := bulkCall(1, "list", 3, 10), bulkCall(2, "list", 2000, 100)
	for _, msg := range []string{
		small, list, bulkCall(3, "list", 20, 50_000), bulkCall(4, "text", 500_000), bulkCall(5, "raw", 500_000),
		bulkCall(6, "fail", 10), bulkCall(7, "fail", 300_000), bulkCall(8, "list", 0, 0),
		"[" + small + "]", "[" + small + "," + list + "," + bulkCall(9, "raw", 9000) + "," + bulkCall(10, "fail", 5000) + "]",
		"[" + list + "," + bulkCall(3, "list", 20, 50_000) + "," + small + "]", // over the batch limit
	} {
		r.send(ours, msg)
		plain.send(theirs, msg)
		got, want := r.receive(ours), strings.TrimSuffix(plain.receive(theirs), "\n") // up to v1.17.3 it ends so
		if got != want {
			t.Errorf("%.80s over WebSocket:\n got %.200s (%d)\nwant %.200s (%d)", msg, got, len(got), want, len(want))
		}
		if status, overHTTP := r.post(msg); status != 200 || strings.TrimSuffix(overHTTP, "\n") != want {
			t.Errorf("%.80s over HTTP: %d\n got %.200s (%d)\nwant %.200s (%d)", msg, status, overHTTP, len(overHTTP), want, len(want))
		}
	}
	r.drained()
}

// Trap: -32003 on a WebSocket must not close the connection.
func TestGuardReplyTrapTooLargeKeepsConnection(t *testing.T) {
	r := newBulkRig(t, nil)
	conn := r.dial()
	for i, method := range []string{"list", "text", "raw", "fail"} {
		msg := bulkCall(i, method, 5<<20)
		if method == "list" {
			msg = bulkCall(i, method, 100, 50_000)
		}
		r.send(conn, msg)
		want := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"error":{"code":-32003,"message":"response too large"}}`, i)
		if got := r.receive(conn); got != want {
			t.Errorf("%s: got %.200s", method, got)
		}
	}
	r.send(conn, bulkCall(9, "list", 1, 1))
	if got := r.receive(conn); got != `{"jsonrpc":"2.0","id":9,"result":["x"]}` {
		t.Errorf("after that: %s", got)
	}
	// By then the method is known to be much work.
	books := r.drained()
	if books["normal"].Failed != 4 || books["compute"].Served != 1 || r.g.replies.status().TooLarge != 4 {
		t.Errorf("books: %+v, %+v", books, r.g.replies.status())
	}
}

// A reply that does not fit after all is -32005 with data, in a batch, too.
func TestGuardReplyDoesNotFit(t *testing.T) {
	r := newBulkRig(t, nil)
	release := r.fill()
	status, got := r.post("[" + bulkCall(1, "list", 40, 50_000) + "," + bulkCall(2, "raw", 10) + "]")
	if status != 200 || !strings.Contains(got, `"id":1,"error":{"code":-32005,`) ||
		!strings.Contains(got, `"wanted":`) || !strings.Contains(got, `"available":`) || !strings.Contains(got, `"limit":16777216`) {
		t.Errorf("%d %s", status, got)
	}
	if !strings.HasSuffix(got, `{"jsonrpc":"2.0","id":2,"result":"xxxxxxxx"}]`) {
		t.Errorf("a small reply beside it: %s", got)
	}
	release()
	books := r.drained()
	if books["normal"].Failed+books["compute"].Failed != 1 || books["normal"].Served+books["compute"].Served != 1 {
		t.Errorf("books: %+v", books)
	}
}

// While the large part is full, a call that is expected to be large does not run.
func TestGuardReplyRefusedBeforeItRuns(t *testing.T) {
	r := newBulkRig(t, nil)
	for range 3 {
		if status, got := r.post(bulkCall(1, "list", 40, 50_000)); status != 200 || len(got) < 2_000_000 {
			t.Fatalf("%d %.100s", status, got)
		}
	}
	calls := r.bulk.calls.Load()
	release := r.fill()
	status, got := r.post(bulkCall(1, "list", 1, 1))
	if status != 429 || !strings.Contains(got, `"code":-32005`) {
		t.Errorf("%d %s", status, got)
	}
	if r.bulk.calls.Load() != calls {
		t.Error("it ran")
	}
	if status, got := r.post(bulkCall(1, "raw", 100)); status != 200 {
		t.Errorf("one that is expected to be small: %d %s", status, got)
	}
	release()
	if books := r.drained()["compute"]; books.Refused["reply"] != 1 {
		t.Errorf("books: %+v", books)
	}
}

// What a method builds counts before there is a reply, and stops it.
func TestGuardReplyBuildingStops(t *testing.T) {
	r := newBulkRig(t, nil)
	_, got := r.post(bulkCall(1, "buildLogs", 1000))
	if !strings.Contains(got, `"code":-32003`) || r.bulk.calls.Load() > 6 {
		t.Errorf("built %d MB of a reply of at most 4: %s", r.bulk.calls.Load(), got)
	}
	release := r.fill()
	r.bulk.calls.Store(0)
	_, got = r.post(bulkCall(1, "buildLogs", 1000))
	if !strings.Contains(got, `"code":-32005`) || r.bulk.calls.Load() > 2 {
		t.Errorf("built %d MB while the budget was full: %s", r.bulk.calls.Load(), got)
	}
	release()
	r.drained()
}

// Trap: batch entries that wait in the queue while earlier results of the same batch
// are held. They are held on the books, until the batch has been written.
func TestGuardReplyTrapBatchHoldsEarlierResults(t *testing.T) {
	r := newBulkRig(t, nil)
	done := make(chan string)
	go func() {
		_, got := r.post("[" + bulkCall(1, "raw", 700_000) + "," + call(2, "test_wait") + "]")
		done <- got
	}()
	r.begun(1)
	if held := r.g.replies.status().InUse; held < 700_000 {
		t.Errorf("%d bytes on the books", held)
	}
	r.end(1)
	if got := <-done; len(got) < 700_000 {
		t.Errorf("got %.100s", got)
	}
	r.drained()
}

// Entries that were answered without having run are on the books as the client saw
// them: arrived and failed.
func TestGuardReplyBooksOfCutBatch(t *testing.T) {
	for _, transport := range []string{"http", "ws"} {
		r := newBulkRig(t, nil)
		msg := "[" + bulkCall(1, "raw", 10) + "," + bulkCall(2, "raw", 1_100_000)
		for i := 3; i <= 12; i++ {
			msg += "," + bulkCall(i, "raw", 10)
		}
		msg += "]"
		var got string
		if transport == "ws" {
			conn := r.dial()
			r.send(conn, msg)
			got = r.receive(conn)
		} else {
			_, got = r.post(msg)
		}
		if n := strings.Count(got, `"code":-32003`); n != 10 {
			t.Errorf("%s: %d entries cut", transport, n)
		}
		if b := r.drained()["normal"]; b.Arrived != 12 || b.Served != 2 || b.Failed != 10 {
			t.Errorf("%s: books %+v", transport, b)
		}
	}
}

// Replies of a connection that breaks are let go, and its socket is closed at once;
// upstream ignores the error and leaves the socket open for a minute.
func TestGuardReplyTrapFailedWriteClosesSocket(t *testing.T) {
	r := newBulkRig(t, nil)
	conn := r.dial()
	for i := range 6 {
		r.send(conn, bulkCall(i, "list", 60, 50_000))
	}
	r.until("replies wait", func() bool { return r.g.replies.status().InUse > 6<<20 })
	start := time.Now()
	reset(conn.UnderlyingConn())
	r.until("they are let go", func() bool { return r.g.replies.status().InUse == 0 })
	r.until("the connection is gone", func() bool {
		r.srv.mutex.Lock()
		defer r.srv.mutex.Unlock()
		return len(r.srv.codecs) == 0
	})
	if took := time.Since(start); took > time.Second {
		t.Errorf("after %v", took)
	}
	r.drained()
}

// A waiting reply goes for another client's, and with it its connection.
func TestGuardReplyDisplacedConnectionIsCut(t *testing.T) {
	for _, transport := range []string{"http", "ws"} {
		r := newBulkRig(t, func(c *GuardConfig) {
			c.Client.TrustedProxies = []string{"127.0.0.0/8"}
			c.Reply.Max, c.Reply.Budget = 16<<20, 64<<20 // more than the kernel's buffers take
		})
		header := http.Header{"X-Forwarded-For": {"198.51.100.1"}}
		var conns []net.Conn
		for i := range 4 {
			msg := bulkCall(i, "list", 240, 50_000)
			if transport == "ws" {
				conn, _, err := websocket.DefaultDialer.Dial(r.ws, header)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				r.send(conn, msg)
				conns = append(conns, conn.UnderlyingConn())
				continue
			}
			conn, err := net.Dial("tcp", r.http.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.(*net.TCPConn).SetReadBuffer(4096)
			fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 198.51.100.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(msg), msg)
			conns = append(conns, conn)
		}
		r.until("all wait", func() bool { return r.g.replies.status().InUse > 45<<20 })
		req, _ := http.NewRequest("POST", r.http.URL, strings.NewReader(bulkCall(9, "list", 240, 50_000)))
		req.Header = http.Header{"X-Forwarded-For": {"198.51.100.2"}, "Content-Type": {"application/json"}}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatalf("%s: %v", transport, err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || len(text) < 12_000_000 {
			t.Errorf("%s: the newcomer got %.100s (%v)", transport, text, err)
		}
		if s := r.g.replies.status(); s.Evicted != 1 {
			t.Errorf("%s: %d displaced", transport, s.Evicted)
		}
		for _, conn := range conns {
			conn.Close()
		}
		r.drained()
	}
}

// A notification has no reply; what it held is let go.
func TestGuardReplyOfNotification(t *testing.T) {
	r := newBulkRig(t, nil)
	r.post(`{"jsonrpc":"2.0","method":"bulk_list","params":[60,50000]}`)
	r.post(`[{"jsonrpc":"2.0","method":"bulk_list","params":[60,50000]},` + bulkCall(1, "raw", 10) + `]`)
	conn := r.dial()
	r.send(conn, `{"jsonrpc":"2.0","method":"bulk_list","params":[60,50000]}`)
	r.send(conn, bulkCall(1, "raw", 10))
	r.receive(conn)
	r.until("three ran", func() bool { return r.bulk.calls.Load() == 3 })
	r.drained()
}

// Trusted clients have no caps and no budget.
func TestGuardReplyTrusted(t *testing.T) {
	r := newBulkRig(t, nil)
	r.srv.SetGuard(r.g.Trusted())
	release := r.fill()
	defer release()
	if status, got := r.post(bulkCall(1, "list", 200, 50_000)); status != 200 || len(got) < 10_000_000 {
		t.Errorf("%d %.100s", status, got)
	}
	if _, got := r.post(bulkCall(1, "buildLogs", 100)); !strings.Contains(got, `"result":100`) {
		t.Errorf("%s", got)
	}
}

func BenchmarkGuardReplyLargeHTTP(b *testing.B) {
	for _, guarded := range []bool{false, true} {
		b.Run(map[bool]string{false: "stock", true: "guard"}[guarded], func(b *testing.B) {
			srv := newPlainServer()
			srv.RegisterName("bulk", new(bulkService))
			if guarded {
				g, err := NewGuard(DefaultGuardConfig, GuardEnv{Procs: 2, HTTPBodyLimit: defaultBodyLimit})
				if err != nil {
					b.Fatal(err)
				}
				srv.SetGuard(g)
			}
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			server := &http.Server{Handler: srv}
			go server.Serve(ln)
			defer server.Close()
			msg := bulkCall(1, "list", 200, 50_000)
			b.ReportAllocs()
			for b.Loop() {
				resp, err := http.Post("http://"+ln.Addr().String(), "application/json", strings.NewReader(msg))
				if err != nil {
					b.Fatal(err)
				}
				n, _ := io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				b.SetBytes(n)
			}
		})
	}
}

// TestGuardReplyOfEverySize: a list is encoded into pieces, and every writer has to
// write all of them, also where the reply is small enough to be copied. Both
// transports once sent only the first piece of lists between 512 bytes and a few
// thousand.
func TestGuardReplyOfEverySize(t *testing.T) {
	r := newBulkRig(t, nil)
	conn := r.dial()
	for _, n := range []int{0, 1, 3, 4, 5, 30, 60, 100, 200, 400, 700, 1000, 2000, 7000, 30_000} {
		want, err := json.Marshal(r.bulk.List(n, 10))
		if err != nil {
			t.Fatal(err)
		}
		reply := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"result":%s}`, want)
		if status, got := r.post(bulkCall(1, "list", n, 10)); status != 200 || got != reply {
			t.Errorf("%d elements over HTTP: status %d, %d bytes, want %d", n, status, len(got), len(reply))
		}
		if status, got := r.post("[" + bulkCall(1, "list", n, 10) + "]"); status != 200 || got != "["+reply+"]" {
			t.Errorf("%d elements in a batch over HTTP: status %d, %d bytes, want %d", n, status, len(got), len(reply)+2)
		}
		r.send(conn, bulkCall(1, "list", n, 10))
		if got := r.receive(conn); got != reply {
			t.Errorf("%d elements over WebSocket: %d bytes, want %d", n, len(got), len(reply))
		}
		r.send(conn, "["+bulkCall(1, "list", n, 10)+"]")
		if got := r.receive(conn); got != "["+reply+"]" {
			t.Errorf("%d elements in a batch over WebSocket: %d bytes, want %d", n, len(got), len(reply)+2)
		}
	}
	r.drained()
}
