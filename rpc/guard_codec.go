// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

// guardCodec wraps the codec of a stream connection (WebSocket, IPC, in-process),
// so that every message in either direction passes the guard.
type guardCodec struct {
	ServerCodec
	g *Guard
	h *handler // set by attachGuard before the first message is read
}

// wrapCodec returns codec as the guard serves it.
func (g *Guard) wrapCodec(codec ServerCodec) ServerCodec {
	g = g.orStandIn()
	if g == nil {
		return codec
	}
	return &guardCodec{ServerCodec: codec, g: g}
}

// attachGuard makes a handler known to the connection it serves.
func (h *handler) attachGuard() {
	if c, ok := h.conn.(*guardCodec); ok {
		c.h = h
	}
}
