// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"net/http"
	"strconv"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// Compression of replies. Whether one is compressed is decided where it always was, by
// the handler that the node puts around its servers: for every client that names gzip.
// But the compressor of the standard library takes more time for a block than the block
// takes to be read and encoded, so that handler's writer is made to let everything pass,
// and this one compresses in its place: five times faster, 1 % larger.
//
// What the client sees is the same but for the bytes of the compressed form: one that
// is marked Transfer-Encoding identity, because it comes late, is not compressed; the
// others lose their length and gain Content-Encoding; the stream ends with the last byte
// of a reply of known length, so that flushing it then is enough.

const (
	// gzipLevel is the fastest of the levels that compress a block as well as the
	// standard library does.
	gzipLevel = 2

	// gzipState is about what a compressor holds, in bytes. That of a large reply is
	// held until the client has taken the reply, so it is charged.
	gzipState = 900 << 10
)

// passThrough is implemented by a writer that would compress, and can be asked not to
// before anything is written. It reports false if it is too late.
type passThrough interface{ PassThrough() bool }

var gzipPool = sync.Pool{New: func() any {
	w, err := gzip.NewWriterLevel(nil, gzipLevel)
	if err != nil {
		panic(err) // the level is ours
	}
	return w
}}

// gzipReply compresses one reply on its way to w.
type gzipReply struct {
	w    http.ResponseWriter
	gz   *gzip.Writer // nil: it has ended
	left int64        // bytes until the reply is complete; -1: unknown
}

// newGzipReply begins a compressed reply, whose header must not be out yet.
func newGzipReply(w http.ResponseWriter) *gzipReply {
	g := &gzipReply{w: w, gz: gzipPool.Get().(*gzip.Writer), left: -1}
	g.gz.Reset(w)
	h := w.Header()
	if n, err := strconv.ParseInt(h.Get("Content-Length"), 10, 64); err == nil {
		g.left = n
	}
	h.Del("Content-Length")
	h.Set("Content-Encoding", "gzip")
	return g
}

// Write implements io.Writer.
func (g *gzipReply) Write(p []byte) (int, error) {
	if g.gz == nil {
		return 0, http.ErrContentLength
	}
	n, err := g.gz.Write(p)
	if err != nil || g.left < 0 {
		return n, err
	}
	if g.left -= int64(n); g.left <= 0 {
		err = g.end()
	}
	return n, err
}

func (g *gzipReply) flush() {
	if g.gz != nil {
		g.gz.Flush()
	}
}

// end writes what is left of the compressed form. It may be called more than once.
func (g *gzipReply) end() error {
	if g.gz == nil {
		return nil
	}
	gz := g.gz
	g.gz = nil
	err := gz.Close()
	gz.Reset(nil)
	gzipPool.Put(gz)
	return err
}

// compress has the reply that begins compressed if w would do so. Large ones only
// while the budget has room for the compressor.
func (w *replyWriter) compress() {
	outer, ok := w.ResponseWriter.(passThrough)
	if !ok || w.Header().Get("Transfer-Encoding") == "identity" || !outer.PassThrough() {
		return
	}
	if !w.scope.chargeCompressor(w.Header()) {
		return
	}
	w.gz = newGzipReply(w.ResponseWriter)
}

// chargeCompressor charges what compressing a reply holds for as long as its client
// takes. It returns false if that does not fit.
func (s *requestScope) chargeCompressor(h http.Header) bool {
	n, err := strconv.Atoi(h.Get("Content-Length"))
	if err != nil || n <= replySmall || !s.g.untrusted() {
		return true
	}
	mem := s.g.replies.budget.open(s.key, nil)
	if mem.grow(gzipState) != nil {
		mem.close()
		return s.g.cfg.DryRun
	}
	s.whenDone(mem.close)
	return true
}
