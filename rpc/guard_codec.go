// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

// guardCodec wraps the codec of a stream connection (WebSocket, IPC, in-process),
// so that every message in either direction passes the guard.
type guardCodec struct {
	ServerCodec
	g      *Guard
	key    clientKey
	h      *handler      // set by attachGuard before the first message is read
	reader *streamReader // likewise; nil: of a client that is trusted
}

// wrapCodec returns codec as the guard serves it.
func (g *Guard) wrapCodec(codec ServerCodec) ServerCodec {
	g = g.orStandIn()
	if g == nil {
		return codec
	}
	c := &guardCodec{ServerCodec: codec, g: g}
	if g.untrusted() {
		c.key = g.keys.keyFor(codec.remoteAddr(), nil)
	}
	return c
}

// attachGuard makes a handler known to the connection it serves.
func (h *handler) attachGuard() {
	if c, ok := h.conn.(*guardCodec); ok {
		c.h = h
		c.attachReader(h)
	}
}

// readBatch reads the next message.
func (c *guardCodec) readBatch() ([]*jsonrpcMessage, bool, error) {
	return c.readGuarded()
}
