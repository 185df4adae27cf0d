// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import "runtime"

// replyBuffer holds one encoded result as a list of chunks. Nothing is ever
// moved, so a reply of n bytes needs n bytes: a growing slice needs 2.25 n when
// it grows for the last time, and encoding into one before it is framed 3 n.
//
// Every chunk is charged before it is allocated, so encoding stops in the middle
// when the budget is full, with at most one element too many in memory.
//
// Whoever fills it lets others run at every chunk once the result is large, and so does
// whoever joins the chunks: see letRun.
//
// The zero value charges nobody and has no bound.
type replyBuffer struct {
	charge func(n int64) error // called before n more bytes are held; nil: free
	max    int64               // bytes; 0: no bound
	yield  func()              // instead of runtime.Gosched, in tests

	chunks [][]byte
	size   int64
	err    error               // of charge or max; sticks
	full   []*[replyChunk]byte // those of the chunks that can be used again
}

// Write appends p. It fails with errReplyTooLarge beyond max, or with the error
// of the charge, and the buffer is of no use after that.
func (b *replyBuffer) Write(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	total := len(p)
	for len(p) > 0 {
		last := len(b.chunks) - 1
		if last < 0 || len(b.chunks[last]) == cap(b.chunks[last]) {
			if err := b.addChunk(len(p)); err != nil {
				return 0, err
			}
			last++
		}
		n := min(len(p), cap(b.chunks[last])-len(b.chunks[last]))
		if b.err = b.checkMax(n); b.err != nil {
			return 0, b.err
		}
		b.chunks[last] = append(b.chunks[last], p[:n]...)
		b.size += int64(n)
		p = p[n:]
	}
	return total, nil
}

// addChunk makes room for at least one byte. Chunks start small and double, so
// that a reply of 100 bytes does not hold 64 KiB. From spliceBytes on it is a full
// chunk if one is there to be used again, and one that is large is a full one, which
// can be.
func (b *replyBuffer) addChunk(want int) error {
	b.letRun()
	size := min(max(want, int(min(b.size, replyChunk)), 512), replyChunk)
	var full *[replyChunk]byte
	if b.size+int64(size) >= spliceBytes {
		full = fullChunks.get()
	}
	if full != nil || size >= replyChunk/4 {
		size = replyChunk
	}
	if b.charge != nil {
		if b.err = b.charge(int64(size)); b.err != nil {
			if full != nil {
				fullChunks.put([]*[replyChunk]byte{full})
			}
			return b.err
		}
	}
	switch {
	case full != nil:
	case size == replyChunk:
		full = new([replyChunk]byte)
	default:
		b.chunks = append(b.chunks, make([]byte, 0, size))
		return nil
	}
	b.full = append(b.full, full)
	b.chunks = append(b.chunks, full[:0])
	return nil
}

// fit ends the writing. A result that would hold much more than its bytes, because its
// last chunk was there already and is far too large, gets one that fits.
func (b *replyBuffer) fit() {
	last := len(b.chunks) - 1
	if last < 0 || len(b.full) == 0 {
		return
	}
	c := b.chunks[last]
	full := b.full[len(b.full)-1]
	if cap(c) != replyChunk || &c[:1][0] != &full[0] || int64(cap(c)-len(c)) <= b.size/2 {
		return
	}
	b.chunks[last] = append(make([]byte, 0, len(c)), c...)
	b.full = b.full[:len(b.full)-1]
	fullChunks.put([]*[replyChunk]byte{full})
}

// adopt appends p without copying it; the caller must not change it any more.
// Its memory exists already, so it is charged whole.
func (b *replyBuffer) adopt(p []byte) error {
	if b.err != nil {
		return b.err
	}
	if b.err = b.checkMax(len(p)); b.err != nil {
		return b.err
	}
	if b.charge != nil {
		if b.err = b.charge(int64(len(p))); b.err != nil {
			return b.err
		}
	}
	// A full slice: the next Write must not append into memory of others.
	b.chunks = append(b.chunks, p[:len(p):len(p)])
	b.size += int64(len(p))
	return nil
}

// checkMax lets two bytes pass that the encoder drops again: the newline after
// a group and its closing bracket. encode looks at the sum.
func (b *replyBuffer) checkMax(n int) error {
	if b.max > 0 && b.size+int64(n) > b.max+2 {
		return errReplyTooLarge
	}
	return nil
}

// join returns the result as one slice, for those that need it so: the entries
// of a batch, whose lengths upstream adds up. A second copy exists until the
// chunks are collected, and is charged.
func (b *replyBuffer) join() ([]byte, error) {
	if len(b.chunks) == 1 {
		return b.chunks[0], nil
	}
	if b.charge != nil {
		if b.err = b.charge(b.size); b.err != nil {
			return nil, b.err
		}
	}
	out := make([]byte, 0, b.size)
	for i, c := range b.chunks {
		b.letRun()
		out = append(out, c...)
		b.chunks[i] = nil
	}
	b.chunks = append(b.chunks[:0], out)
	fullChunks.put(b.full)
	b.full = nil
	return out, nil
}

// yieldBytes is the size from which on a result is large enough for others to notice that
// it is encoded: 2 to 3 ms.
const yieldBytes = 512 << 10

// letRun has the goroutine go to the end of the queue if the result is large. Clients that
// each ask for many megabytes would otherwise pass a call by only every 10 ms a client,
// which is when Go takes the processor from who does not give it up. And from who copies
// it cannot: a loop of nothing but copies has no place for that, so 20 MB were joined in up
// to 100 ms in one go, with the collector, which must stop everybody in turn, waiting for
// it on the other processor. Below yieldBytes it would only have the encodings of blocks
// take turns, each finding the processor's caches full of another one's.
func (b *replyBuffer) letRun() {
	switch {
	case b.size < yieldBytes:
	case b.yield != nil:
		b.yield()
	default:
		runtime.Gosched()
	}
}

// dropLast removes the last byte written.
func (b *replyBuffer) dropLast() {
	last := len(b.chunks) - 1
	b.chunks[last] = b.chunks[last][:len(b.chunks[last])-1]
	b.size--
	if len(b.chunks[last]) == 0 && last > 0 {
		b.chunks = b.chunks[:last]
	}
}
