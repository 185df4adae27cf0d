// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// errReplyCut is what writing says after the reply's transfer was ended early.
var errReplyCut = errors.New("client does not take its reply")

// httpReplyConn writes the replies of one HTTP request, large results from where they
// lie. The codec underneath would copy them into its buffer first, whole batches
// included, and hold both until the client has taken the last byte.
type httpReplyConn struct {
	jsonWriter // upstream's codec
	scope      *requestScope
}

// attach makes the codec of the request's handler pass the scope: what it reads is the
// body that was read, what it writes is written here.
func (s *requestScope) attach(codec jsonWriter) jsonWriter {
	if s.frame.read {
		s.attachFrame(codec.(*jsonCodec))
	}
	s.conn.jsonWriter = codec
	return &s.conn
}

// send writes a reply, or those to a batch. As upstream does it, one that comes late
// goes out without compression and is flushed, so that it is complete before the
// server's time-out.
func (c *httpReplyConn) send(ctx context.Context, msg *jsonrpcMessage, batch []*jsonrpcMessage, isError bool) (err error) {
	end := beginWriteSpan(ctx)
	defer end(&err)

	if c.scope.g.boundsIDs() {
		hideOversizedIDs(batch...)
		if msg != nil {
			hideOversizedIDs(msg)
		}
	}
	b := newFrameBatch(noFraming)
	defer b.recycle()
	if msg != nil {
		b.reply(msg)
	} else {
		b.replyBatch(batch)
	}
	size := b.size
	if err := c.scope.out.begin(size); err != nil {
		return err
	}
	defer c.scope.out.end(size)

	w := &c.scope.writer
	header := w.Header()
	header["Content-Length"] = []string{strconv.Itoa(size)}
	if isError {
		header.Set("Transfer-Encoding", "identity")
	}
	if err := b.writeTo(w); err != nil {
		return err
	}
	if msg != nil {
		msg.recycleResult()
	}
	if isError {
		return http.NewResponseController(w).Flush()
	}
	return nil
}

// httpOut is the way out of one HTTP request: it is watched while much waits to be
// taken, and can be cut from any goroutine. Cutting sets a write deadline in the past,
// on an HTTP/2 stream for that stream alone, and only while the request's own write is
// in progress: the connection may serve the next request a moment later.
type httpOut struct {
	scope *requestScope
	stall atomic.Pointer[stallConn] // of what is written, or was last; read without the lock

	mu      sync.Mutex
	writing int
	wasCut  bool
}

type httpConnKey struct{}

// withHTTPConn makes the connection of a request known to it; see http.Server's
// ConnContext.
func withHTTPConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, httpConnKey{}, conn)
}

// watchable returns the way out as the stall watch sees it, nil if it does not: without
// the kernel's word there is nothing to judge HTTP by but time, and for that there is
// the server's own time-out. What fits the kernel's buffers has left when it is written.
func (o *httpOut) watchable(n int) *stallConn {
	g := o.scope.g
	if n <= replySmall || !kernelTells || !g.enforces() {
		return nil
	}
	conn, ok := o.scope.end.Value(httpConnKey{}).(net.Conn)
	if !ok {
		return nil
	}
	return g.replies.stall.conn(newKernelQueue(conn), o.cut)
}

// begin says that n bytes are about to be written.
func (o *httpOut) begin(n int) error {
	stall := o.watchable(n)
	o.mu.Lock()
	if o.wasCut {
		o.mu.Unlock()
		return errReplyCut
	}
	o.writing++
	o.stall.Store(stall)
	o.mu.Unlock()
	stall.begin(int64(n))
	return nil
}

// end says that they have left, or never will.
func (o *httpOut) end(n int) {
	o.mu.Lock()
	stall := o.stall.Load()
	o.writing--
	o.mu.Unlock()
	stall.end(int64(n))
}

// cut makes a write in progress, and any later one, fail.
func (o *httpOut) cut() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.wasCut = true
	if o.writing > 0 {
		o.scope.forgetSent()
		http.NewResponseController(o.scope.writer.ResponseWriter).SetWriteDeadline(time.Unix(1, 0))
	}
}

// forgetSent has what the kernel holds for the client dropped when the connection is
// closed: that is up to 4 MiB which nobody counts, for minutes if the client does not
// read. An HTTP/2 connection lives on, for its other streams.
func (s *requestScope) forgetSent() {
	if conn, ok := s.end.Value(httpConnKey{}).(net.Conn); ok && s.proto == 1 {
		if tcp, ok := socketUnder[*net.TCPConn](conn); ok {
			tcp.SetLinger(0)
		}
	}
}
