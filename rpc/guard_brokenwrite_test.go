// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// brittleConn is a connection whose writes fail from a moment on that the test chooses,
// while its client stays and reads. Only the failed write can tell the server.
type brittleConn struct {
	net.Conn
	broken atomic.Bool
	failed chan time.Time // receives when a write failed first
	closed chan time.Time // likewise for Close
	once   [2]sync.Once
}

func (c *brittleConn) Write(p []byte) (int, error) {
	if c.broken.Load() {
		c.once[0].Do(func() { c.failed <- time.Now() })
		return 0, os.ErrDeadlineExceeded
	}
	return c.Conn.Write(p)
}

func (c *brittleConn) Close() error {
	c.once[1].Do(func() { c.closed <- time.Now() })
	return c.Conn.Close()
}

type brittleListener struct {
	net.Listener
	conns chan *brittleConn
}

func (l brittleListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &brittleConn{Conn: conn, failed: make(chan time.Time, 1), closed: make(chan time.Time, 1)}
	l.conns <- c
	return c, nil
}

// serveBrittle serves h on connections that the test can break.
func serveBrittle(t *testing.T, h http.Handler) (addr string, conns chan *brittleConn) {
	s := httptest.NewUnstartedServer(h)
	conns = make(chan *brittleConn, 8)
	s.Listener = brittleListener{s.Listener, conns}
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), conns
}

func (c *brittleConn) mustCloseAtOnce(t *testing.T) {
	t.Helper()
	var failed, closed time.Time
	for range 2 {
		select {
		case failed = <-c.failed:
		case closed = <-c.closed:
		case <-time.After(5 * time.Second):
			t.Fatal("the socket stays open")
		}
	}
	took := closed.Sub(failed)
	t.Logf("from the failed write to the closed socket: %v", took)
	if took > time.Second {
		t.Errorf("the socket was closed %v after the failed write, want within a second", took)
	}
}

// Trap: write errors that leave the socket open for a minute. A client that stays
// connected and sends nothing more gives no other sign. What its connection held is
// given back too: executing and waiting calls, reply bytes, its subscriptions.
func TestGuardReplyTrapWriteErrorClosesWebSocket(t *testing.T) {
	r := newBulkRig(t, func(c *GuardConfig) { c.Admission.Concurrency = 1 })
	addr, conns := serveBrittle(t, anyOrigin(r.srv))
	client, _, err := websocket.DefaultDialer.Dial("ws://"+addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server := <-conns

	r.send(client, `{"jsonrpc":"2.0","id":1,"method":"test_subscribe","params":["ticks"]}`)
	r.receive(client)
	r.send(client, call(2, "test_wait"))
	r.begun(1)
	r.send(client, call(3, "test_wait"))
	r.waiting(1)
	r.send(client, bulkCall(4, "list", 10, 50_000))
	r.waiting(2)
	server.broken.Store(true)
	r.send(client, call(5, "rpc_modules")) // light: its answer is the write that fails
	server.mustCloseAtOnce(t)

	if b := r.drained()["normal"]; b.Cancelled != 3 {
		t.Errorf("books of the calls that were left: %+v", b)
	}
	r.until("no subscription is left", func() bool { return r.g.subs.active.now.Load() == 0 })
}

// The same over HTTP, where the reply that fails is the only one there is.
func TestGuardReplyTrapWriteErrorClosesHTTP(t *testing.T) {
	r := newBulkRig(t, nil)
	addr, conns := serveBrittle(t, r.srv)
	client, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server := <-conns

	server.broken.Store(true)
	msg := bulkCall(1, "list", 60, 50_000)
	fmt.Fprintf(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(msg), msg)
	server.mustCloseAtOnce(t)
	if got, _ := io.ReadAll(client); len(got) > 0 {
		t.Errorf("the client read %.100q", got)
	}
	r.drained()
}
