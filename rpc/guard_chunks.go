// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"io"
	"sync"
)

// chunkSizes are the sizes of the buffers a body grows by, the last one for all
// that follow. A call of a few hundred bytes costs one small buffer, a stalled
// sender as little as it sent.
var chunkSizes = [...]int{1 << 10, 4 << 10, 16 << 10, budgetStep}

var chunkPools [len(chunkSizes)]sync.Pool // of *chunk

// chunk is one buffer of a chunkBuffer.
type chunk struct {
	buf  []byte // its length is what is filled
	kind int    // index in chunkSizes
}

func newChunk(kind int) *chunk {
	if c, ok := chunkPools[kind].Get().(*chunk); ok {
		return c
	}
	return &chunk{buf: make([]byte, 0, chunkSizes[kind]), kind: kind}
}

func (c *chunk) free() {
	c.buf = c.buf[:0]
	chunkPools[c.kind].Put(c)
}

// chunkBuffer holds a body in pieces: written at the end, then read once from
// the start. Growing copies nothing and holds at most one partly filled buffer,
// where a slice grown by append holds twice its length while it moves. Reading
// gives the buffers back one by one.
//
// The zero value is empty. It is used by one goroutine at a time.
type chunkBuffer struct {
	chunks []*chunk
	length int64 // bytes written and not yet read
	off    int   // bytes of the first chunk already read
	spare  *chunk

	oversized bool // a batch with too many elements
}

// size returns how many bytes wait to be read.
func (b *chunkBuffer) size() int64 { return b.length }

// space returns room for at most n bytes, and at least one if n is above 0, to
// be filled from its start and then added by extend.
func (b *chunkBuffer) space(n int64) []byte {
	if n <= 0 {
		return nil
	}
	var last *chunk
	if len(b.chunks) > 0 {
		last = b.chunks[len(b.chunks)-1]
	}
	if last == nil || len(last.buf) == cap(last.buf) {
		last = newChunk(min(len(b.chunks), len(chunkSizes)-1))
		b.chunks = append(b.chunks, last)
	}
	free := last.buf[len(last.buf):cap(last.buf)]
	return free[:min(int64(len(free)), n)]
}

// extend adds the first n bytes of what space returned last.
func (b *chunkBuffer) extend(n int) {
	if n > 0 {
		last := b.chunks[len(b.chunks)-1]
		last.buf = last.buf[:len(last.buf)+n]
		b.length += int64(n)
	}
}

// scratch returns room for bytes that are not kept.
func (b *chunkBuffer) scratch(n int64) []byte {
	if b.spare == nil {
		b.spare = newChunk(1)
	}
	return b.spare.buf[:min(n, int64(cap(b.spare.buf)))]
}

// closeBatch ends a batch that was cut.
func (b *chunkBuffer) closeBatch() {
	b.space(1)[0] = ']'
	b.extend(1)
}

// Read implements io.Reader.
func (b *chunkBuffer) Read(p []byte) (n int, err error) {
	for n < len(p) && b.length > 0 {
		first := b.chunks[0]
		m := copy(p[n:], first.buf[b.off:])
		n, b.off, b.length = n+m, b.off+m, b.length-int64(m)
		if b.off == len(first.buf) {
			b.chunks[0] = nil
			b.chunks, b.off = b.chunks[1:], 0
			first.free()
		}
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// join returns all bytes in one piece, nil if there are none, and gives the buffers
// back one by one.
func (b *chunkBuffer) join() []byte {
	defer b.Close()
	if b.length == 0 {
		return nil
	}
	whole := make([]byte, b.length)
	for n := 0; n < len(whole); {
		m, _ := b.Read(whole[n:])
		n += m
	}
	return whole
}

// Close gives all buffers back. It may be called more than once.
func (b *chunkBuffer) Close() error {
	for _, c := range b.chunks {
		c.free()
	}
	if b.spare != nil {
		b.spare.free()
	}
	*b = chunkBuffer{}
	return nil
}
