// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"runtime"
	"sync"
)

// chunkList keeps the full chunks of replies that have left, for replies to come. A
// full block is 168 KB of text, a fifth of all that making it allocates, and the
// collector's work grows with that.
//
// It is a list and not a sync.Pool, since a pool keeps whatever it is given until the
// second collection from then: after a wave of large replies that would be as much as
// the reply budget, which by then charges nobody for it. The list keeps a bounded
// number of chunks, for good: 1 MiB a processor.
//
// # Invariants
//
//   - A chunk is given back by whoever has written the reply to its end, and only if
//     that went well: a writer that failed may still hold it.
//   - What a reply holds beyond its bytes is at most half of them. One that is too
//     small for its last chunk is copied (replyBuffer.fit).
type chunkList struct {
	most int

	mu   sync.Mutex
	free []*[replyChunk]byte
}

// fullChunks is the process's list.
var fullChunks = &chunkList{most: 16 * runtime.GOMAXPROCS(0)}

// get returns a chunk, nil if there is none.
func (l *chunkList) get() *[replyChunk]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := len(l.free) - 1
	if last < 0 {
		return nil
	}
	c := l.free[last]
	l.free[last] = nil
	l.free = l.free[:last]
	return c
}

// put gives chunks back that nobody refers to any more.
func (l *chunkList) put(chunks []*[replyChunk]byte) {
	if len(chunks) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(chunks), l.most-len(l.free))
	l.free = append(l.free, chunks[:n]...)
}

// recycleResult gives the chunks of a result back. The message must have been written,
// and nobody may look at its result after that.
func (msg *jsonrpcMessage) recycleResult() {
	if msg.guard != nil && msg.guard.full != nil {
		full := msg.guard.full
		msg.guard.full, msg.guard.chunks, msg.Result = nil, nil, nil
		fullChunks.put(full)
	}
}
