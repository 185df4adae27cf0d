// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"fmt"
	"math/rand"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The ways in which bytes of replies escape a limit that looks only at what is
// being written. Others are tested where what prevents them is.

// halfwayService answers with a list whose last element is not encoded before the test
// says so.
type halfwayService struct{ goOn chan struct{} }

type halfwayItem struct {
	size int
	goOn chan struct{} // nil: at once
}

func (i *halfwayItem) MarshalJSON() ([]byte, error) {
	if i.goOn != nil {
		<-i.goOn
	}
	text := make([]byte, i.size)
	for k := range text {
		text[k] = '1'
	}
	return text, nil
}

func (s *halfwayService) List() []*halfwayItem {
	return []*halfwayItem{{1 << 20, nil}, {1 << 20, nil}, {1 << 20, nil}, {1 << 20, nil}, {10, s.goOn}}
}

// Trap: charging at the write. The memory is there before.
func TestGuardReplyTrapChargedWhileItIsEncoded(t *testing.T) {
	r := newBulkRig(t, func(c *GuardConfig) { c.Reply.Max = 8 << 20 })
	s := &halfwayService{make(chan struct{})}
	require.NoError(t, r.srv.RegisterName("halfway", s))
	conn := r.dial()
	r.send(conn, `{"jsonrpc":"2.0","id":1,"method":"halfway_list"}`)
	r.until("what is encoded is charged", func() bool { return r.g.replies.status().InUse >= 4<<20 })
	close(s.goOn)
	_, text, err := conn.ReadMessage()
	require.NoError(t, err)
	require.Greater(t, len(text), 4<<20)
	r.drained()
}

// Trap: writing under a lock that other calls of the connection need. They run while
// its reply is stuck.
func TestGuardReplyTrapStuckReplyStopsNoOtherCall(t *testing.T) {
	r := newBulkRig(t, func(c *GuardConfig) { c.Reply.Max, c.Reply.Budget = 32<<20, 128<<20 })
	conn := r.dial()
	require.NoError(t, conn.UnderlyingConn().(*net.TCPConn).SetReadBuffer(4096))
	r.send(conn, bulkCall(1, "list", 400, 50_000))
	r.until("a reply is stuck", func() bool { return r.g.replies.status().InUse >= 20_000_000 })
	for i := range 20 {
		r.send(conn, bulkCall(2+i, "text", 100))
	}
	r.until("the others have run", func() bool { return r.bulk.calls.Load() == 21 })
	require.GreaterOrEqual(t, r.g.replies.status().InUse, int64(20_000_000), "it has been taken")
	reset(conn.UnderlyingConn()) // to read it through such a buffer would take minutes
	r.drained()
}

// Trap: the pieces of a batch's entry are copied into one, and both stay charged.
func TestGuardReplyTrapJoinedEntryIsChargedOnce(t *testing.T) {
	const size = 20_000_000
	r := newBulkRig(t, func(c *GuardConfig) { c.Reply.Max, c.Reply.Budget = 32<<20, 128<<20 })
	conn := r.dial()
	require.NoError(t, conn.UnderlyingConn().(*net.TCPConn).SetReadBuffer(4096))
	r.send(conn, "["+bulkCall(1, "list", 400, 50_000)+"]")
	r.until("a reply waits", func() bool { return r.g.admission.gate.book(classNormal).Served == 1 })
	held := r.g.replies.status().InUse
	require.GreaterOrEqual(t, held, int64(size))
	require.Less(t, held, int64(size+size/10))
	reset(conn.UnderlyingConn())
	r.drained()
}

// gzipLike is a writer that would compress, as node's.
type gzipLike struct {
	http.ResponseWriter
	passes bool
}

func (w *gzipLike) PassThrough() bool           { w.passes = true; return true }
func (w *gzipLike) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// noise does not compress to less than half.
type noiseService struct{}

func (noiseService) Text(n int) string {
	text := make([]byte, n)
	rnd := rand.New(rand.NewSource(1))
	for i := range text {
		text[i] = "0123456789abcdef"[rnd.Intn(16)]
	}
	return string(text)
}

// Trap: compressors hold buffers of their own, for as long as a client takes.
func TestGuardReplyTrapCompressorIsCharged(t *testing.T) {
	const size = 24 << 20
	s := newIntakeServer(t, func(_ *GuardConfig, h *http.Server) { h.WriteTimeout = time.Minute })
	require.NoError(t, s.srv.RegisterName("noise", noiseService{}))
	inner := s.http.Handler
	s.http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { inner.ServeHTTP(&gzipLike{w, false}, r) })
	held := func() int64 { return s.g.replies.budget.stats().InUse }
	ask := func() net.Conn {
		conn, err := net.Dial("tcp", s.addr)
		require.NoError(t, err)
		conn.(*net.TCPConn).SetReadBuffer(4096)
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"noise_text","params":[%d]}`, size)
		fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		return conn
	}
	conn := ask()
	defer conn.Close()
	require.Eventually(t, func() bool { return held() >= size+gzipState }, 20*time.Second, time.Millisecond)
	require.Less(t, held(), int64(size+gzipState+(64<<10)))
	conn.Close()
	require.Eventually(t, func() bool { return held() == 0 }, 20*time.Second, time.Millisecond)
}
