// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

// What upstream's releases spell differently, in one place: a base for older
// ones (patches/bases) has its own variant of this file, so that no other file
// needs one.

// errorSize is the number of bytes that a message's error holds. From v1.17.4 on
// an error is encoded when the message is made.
func (msg *jsonrpcMessage) errorSize() int { return len(msg.Error) }

// readLimit is the largest WebSocket message that the server reads, in bytes.
// The field came with v1.16.3.
func (s *Server) readLimit() int64 { return s.wsReadLimit }

func (s *Server) setReadLimit(n int64) { s.wsReadLimit = n }

// cutBatches has the codec drop the elements of a batch beyond limit+1 before they
// are built. From v1.17.6 on a WebSocket codec reads a message as a whole.
func (c *jsonCodec) cutBatches(limit int) {
	read := c.readFrame
	if read == nil {
		return
	}
	c.readFrame = func() ([]byte, error) {
		frame, err := read()
		return cutBatch(frame, limit), err
	}
}

// setRefusal makes msg a refusal.
func (msg *jsonrpcMessage) setRefusal(e *refusalError) { msg.Error = e.encoded }
