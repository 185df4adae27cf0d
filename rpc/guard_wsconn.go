// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"net"
	"sync/atomic"
	"time"
)

// guardConn is a hijacked connection as the WebSocket library sees it. Once an
// outbox is attached, data frames pass below the library, and what the library
// still writes (control frames) goes through the outbox as well: the library never
// waits for the client, and its write deadlines mean nothing.
type guardConn struct {
	net.Conn
	out atomic.Pointer[outbox] // nil during the handshake
	key clientKey              // of the client; the zero key on trusted servers
	in  *intake                // likewise nil
}

// NetConn returns the connection itself.
func (c *guardConn) NetConn() net.Conn { return c.Conn }

func (c *guardConn) Write(p []byte) (int, error) {
	if out := c.out.Load(); out != nil {
		return out.writeControl(p)
	}
	return c.Conn.Write(p)
}

func (c *guardConn) SetWriteDeadline(t time.Time) error {
	if c.out.Load() != nil {
		return nil
	}
	return c.Conn.SetWriteDeadline(t)
}

func (c *guardConn) SetDeadline(t time.Time) error {
	if c.out.Load() != nil {
		return c.Conn.SetReadDeadline(t)
	}
	return c.Conn.SetDeadline(t)
}
