// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// errReplyCut is what writing says after the reply's transfer was ended early.
var errReplyCut = errors.New("client does not take its reply")

// watchReply has the replies of a request of an untrusted client written, through w,
// from where they lie. conn is upstream's codec.
func (s *requestScope) watchReply(ctx context.Context, conn jsonWriter) jsonWriter {
	if s.w == nil || !s.g.untrusted() {
		return conn
	}
	s.out = newHTTPOut(s.g.replies.stall, ctx, s.w)
	return &httpReplyCodec{jsonWriter: conn, w: s.w, out: s.out}
}

// httpReplyCodec writes the replies of one HTTP request from where they lie. The
// codec underneath would copy them into its buffer first, whole batches included,
// and hold both until the client has taken the last byte.
type httpReplyCodec struct {
	jsonWriter
	w   http.ResponseWriter
	out *httpOut
}

// send writes a message, or a batch of them, where it lies if it is large. A small one
// is left to the codec underneath, which is what upstream does.
func (c *httpReplyCodec) send(msg *jsonrpcMessage, batch []*jsonrpcMessage, isError bool, upstream func() error) error {
	size := 0
	if msg != nil {
		size = msg.resultSize()
	}
	for _, m := range batch {
		size += m.resultSize()
	}
	if err := c.out.begin(size); err != nil {
		return err
	}
	defer c.out.end(size)
	switch {
	case size < spliceBytes && (msg == nil || msg.resultChunks() == nil):
		return upstream()
	case msg != nil:
		return c.write(appendPieces(nil, msg), isError)
	}
	pieces := net.Buffers{[]byte("[")}
	for i, m := range batch {
		if i > 0 {
			pieces = append(pieces, []byte(","))
		}
		pieces = appendPieces(pieces, m)
	}
	return c.write(append(pieces, []byte("]")), isError)
}

// write sends the reply. As upstream does it, one that comes late goes out without
// compression and is flushed, so that it is complete before the server's time-out.
func (c *httpReplyCodec) write(pieces net.Buffers, isError bool) error {
	total := 0
	for _, p := range pieces {
		total += len(p)
	}
	header := c.w.Header()
	header.Set("content-length", strconv.Itoa(total))
	if isError {
		header.Set("transfer-encoding", "identity")
	}
	for i, p := range pieces {
		if _, err := c.w.Write(p); err != nil {
			return err
		}
		pieces[i] = nil
	}
	if isError {
		return http.NewResponseController(c.w).Flush()
	}
	return nil
}

// appendPieces appends the text of a message, its result where it lies.
func appendPieces(pieces net.Buffers, msg *jsonrpcMessage) net.Buffers {
	chunks := msg.resultChunks()
	if chunks == nil {
		if len(msg.Result) < spliceBytes {
			return append(pieces, appendMessage(nil, msg))
		}
		chunks = [][]byte{msg.Result}
	}
	// Pieces whatever their size: Result is only the first (TestGuardReplyOfEverySize).
	head, tail := appendLargeMessage(nil, msg)
	pieces = append(append(pieces, head), chunks...)
	return append(pieces, []byte(tail))
}

// httpOut is the way out of one HTTP request: it is watched while something waits to
// be taken, and can be cut from any goroutine. Cutting sets a write deadline in the
// past, on an HTTP/2 stream for that stream alone, and only while the request's own
// write is in progress: the connection may serve the next request a moment later.
type httpOut struct {
	rc    *http.ResponseController
	stall *stallConn

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

func newHTTPOut(watch *stallWatch, ctx context.Context, w http.ResponseWriter) *httpOut {
	o := &httpOut{rc: http.NewResponseController(w)}
	// Without the kernel's word there is nothing to judge HTTP by but time, and for
	// that there is the server's own time-out.
	if conn, ok := ctx.Value(httpConnKey{}).(net.Conn); ok && kernelTells {
		o.stall = watch.conn(newKernelQueue(conn), o.cut)
	}
	return o
}

// begin says that n bytes are about to be written.
func (o *httpOut) begin(n int) error {
	o.mu.Lock()
	if o.wasCut {
		o.mu.Unlock()
		return errReplyCut
	}
	o.writing++
	o.mu.Unlock()
	o.stall.begin(int64(n))
	return nil
}

// end says that they have left, or never will.
func (o *httpOut) end(n int) {
	o.stall.end(int64(n))
	o.mu.Lock()
	o.writing--
	o.mu.Unlock()
}

// cut makes a write in progress, and any later one, fail.
func (o *httpOut) cut() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.wasCut = true
	if o.writing > 0 {
		o.rc.SetWriteDeadline(time.Unix(1, 0))
	}
}
