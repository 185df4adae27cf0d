// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"encoding/binary"
	"io"
	"net"
	"sync"

	"github.com/gorilla/websocket"
)

const (
	// batchBytes is how much the writer of a connection collects before it writes.
	// Larger batches save no system calls worth having, delay the control frames
	// that go between them, and are memory that a stuck writer holds besides what
	// its queue is charged for.
	batchBytes = 32 << 10

	// sendPiece is the unit in which a long message is written, so that progress
	// shows.
	sendPiece = 64 << 10

	// sendLarge is that unit where progress shows within it: most replies are one
	// write then. A connection counts as used after each (see trackedConn), so it is
	// what a reader of 50 KB/s takes in 10 s.
	sendLarge = 512 << 10

	// spliceBytes is the size from which a result is written from where it lies.
	// Below it, copying into the batch is cheaper than one more element of writev.
	spliceBytes = 4 << 10

	// pooledBytes is the largest scratch buffer that is kept for the next batch.
	pooledBytes = 2 * batchBytes
)

// framing is how a transport marks where a message begins and ends.
type framing uint8

const (
	lineFraming framing = iota // raw streams: one message a line
	wsFraming                  // WebSocket: one unfragmented text frame a message, not masked
	noFraming                  // an HTTP response, which is one message and no more
)

// begin appends what stands before a message of n bytes.
func (f framing) begin(buf []byte, n int) []byte {
	if f != wsFraming {
		return buf
	}
	const final = 1 << 7
	buf = append(buf, final|websocket.TextMessage)
	switch {
	case n <= 125:
		return append(buf, byte(n))
	case n <= 0xffff:
		return binary.BigEndian.AppendUint16(append(buf, 126), uint16(n))
	default:
		return binary.BigEndian.AppendUint64(append(buf, 127), uint64(n))
	}
}

// end appends what stands after a message.
func (f framing) end(buf []byte) []byte {
	if f == lineFraming {
		buf = append(buf, '\n')
	}
	return buf
}

// frameBatch collects whole frames that are written in one go. Small messages are
// copied into scratch; large results are only referred to.
//
// A batch belongs to one writer at a time.
type frameBatch struct {
	framing framing
	scratch []byte
	pieces  []piece
	copied  int // scratch[copied:] is in no piece yet
	size    int
}

// piece is a stretch of the batch: foreign bytes, or scratch[start:end]. Offsets
// and not slices, because scratch may move while it grows.
type piece struct {
	foreign    []byte
	start, end int
}

var framePool = sync.Pool{New: func() any { return new(frameBatch) }}

func newFrameBatch(f framing) *frameBatch {
	b := framePool.Get().(*frameBatch)
	b.framing = f
	return b
}

// recycle empties the batch and hands it to the next writer. Idle connections hold
// no buffer.
func (b *frameBatch) recycle() {
	b.reset()
	if b.reusable() != nil {
		framePool.Put(b)
	}
}

// reusable returns the batch for the next use, or nil if it has grown too large for
// that.
func (b *frameBatch) reusable() *frameBatch {
	if cap(b.scratch) > pooledBytes {
		return nil
	}
	return b
}

func (b *frameBatch) reset() {
	clear(b.pieces) // or the pool would keep results alive
	b.scratch, b.pieces, b.copied, b.size = b.scratch[:0], b.pieces[:0], 0, 0
}

// message adds one message, which consists of parts.
func (b *frameBatch) message(head, body []byte, tail string) {
	n := len(head) + len(body) + len(tail)
	before := len(b.scratch)
	b.scratch = b.framing.begin(b.scratch, n)
	b.scratch = append(b.scratch, head...)
	if len(body) >= spliceBytes {
		b.splice(body)
	} else {
		b.scratch = append(b.scratch, body...)
	}
	b.scratch = append(b.scratch, tail...)
	b.scratch = b.framing.end(b.scratch)
	b.size += len(b.scratch) - before
}

// messageInChunks adds one message whose body of n bytes is in many pieces.
func (b *frameBatch) messageInChunks(head []byte, body [][]byte, n int, tail string) {
	before := len(b.scratch)
	b.scratch = b.framing.begin(b.scratch, len(head)+n+len(tail))
	b.scratch = append(b.scratch, head...)
	for _, chunk := range body {
		b.splice(chunk)
	}
	b.scratch = append(b.scratch, tail...)
	b.scratch = b.framing.end(b.scratch)
	b.size += len(b.scratch) - before
}

// raw adds bytes that are framed already.
func (b *frameBatch) raw(frame []byte) {
	b.scratch = append(b.scratch, frame...)
	b.size += len(frame)
}

// whole returns the batch if it is in one piece, and nil if not.
func (b *frameBatch) whole() []byte {
	if len(b.pieces) > 0 {
		return nil
	}
	return b.scratch[b.copied:]
}

// skip takes the first n bytes off a batch in one piece, because they have left.
func (b *frameBatch) skip(n int) {
	b.copied += n
	b.size -= n
}

func (b *frameBatch) splice(foreign []byte) {
	b.cut()
	b.pieces = append(b.pieces, piece{foreign: foreign})
	b.size += len(foreign)
}

func (b *frameBatch) cut() {
	if end := len(b.scratch); end > b.copied {
		b.pieces = append(b.pieces, piece{start: b.copied, end: end})
		b.copied = end
	}
}

// buffers returns the batch as one gathered write. They are valid until the batch
// is reset.
func (b *frameBatch) buffers() net.Buffers {
	b.cut()
	bufs := make(net.Buffers, len(b.pieces))
	for i, p := range b.pieces {
		bufs[i] = p.foreign
		if p.foreign == nil {
			bufs[i] = b.scratch[p.start:p.end]
		}
	}
	return bufs
}

// writeTo writes the batch piece by piece, to a writer that gathers what is small.
func (b *frameBatch) writeTo(w io.Writer) error {
	b.cut()
	for _, p := range b.pieces {
		text := p.foreign
		if text == nil {
			text = b.scratch[p.start:p.end]
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	return nil
}

// reply adds the response to a call, or a call of the server's own. A result in pieces
// is at least spliceBytes long.
func (b *frameBatch) reply(msg *jsonrpcMessage) {
	var buf [256]byte
	size := msg.resultSize()
	if size < spliceBytes {
		b.message(appendMessage(buf[:0], msg), nil, "")
		return
	}
	head, tail := appendLargeMessage(buf[:0], msg)
	if chunks := msg.resultChunks(); chunks != nil {
		b.messageInChunks(head, chunks, size, tail)
		return
	}
	b.message(head, msg.Result, tail)
}

// replyBatch adds the responses to a batch, which are one message. Its length, which
// stands in front of it, is known at its end: so room is left, and what is left of
// that is in no piece.
func (b *frameBatch) replyBatch(msgs []*jsonrpcMessage) {
	var room [10]byte // the largest mark there is
	b.cut()
	start := len(b.scratch)
	b.scratch = append(b.scratch, room[:]...)
	b.copied = len(b.scratch)
	before := b.size

	b.scratch = append(b.scratch, '[')
	for i, msg := range msgs {
		if i > 0 {
			b.scratch = append(b.scratch, ',')
		}
		if msg.resultSize() < spliceBytes {
			b.scratch = appendMessage(b.scratch, msg)
			continue
		}
		var tail string
		b.scratch, tail = appendLargeMessage(b.scratch, msg)
		if chunks := msg.resultChunks(); chunks != nil {
			for _, chunk := range chunks {
				b.splice(chunk)
			}
		} else {
			b.splice(msg.Result)
		}
		b.scratch = append(b.scratch, tail...)
	}
	b.scratch = append(b.scratch, ']')
	spliced := b.size - before
	total := len(b.scratch) - start - len(room) + spliced

	mark := b.framing.begin(room[:0], total)
	at := start + len(room) - len(mark)
	copy(b.scratch[at:], mark)
	if first := b.firstPieceFrom(start); first != nil {
		first.start = at
	} else {
		b.copied = at
	}
	b.scratch = b.framing.end(b.scratch)
	b.size = before + spliced + len(b.scratch) - at
}

// firstPieceFrom returns the first piece of scratch that begins at or after start, nil
// if there is none yet.
func (b *frameBatch) firstPieceFrom(start int) *piece {
	for i := range b.pieces {
		if p := &b.pieces[i]; p.foreign == nil && p.start >= start {
			return p
		}
	}
	return nil
}
