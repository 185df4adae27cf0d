// SPDX-License-Identifier: LGPL-3.0-or-later

package rig

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// Dialer makes the connections of one client.
type Dialer struct {
	From    string // source address; empty: the system's choice, 127.0.0.1
	RcvBuf  int    // receive buffer in bytes, set before connecting; 0: the system's
	SndBuf  int    // send buffer in bytes; 0: the system's
	Forward string // X-Forwarded-For of every request; empty: none
}

// Attacker returns the dialer of the i-th attacking client, counted from 0: a
// client of its own for a node that tells loopback addresses apart. Systems
// other than Linux route only 127.0.0.1 by default. There is but one ::1, so that
// over IPv6 clients are told apart by what a proxy says of them.
func (n *Node) Attacker(i int) Dialer {
	switch {
	case n.ipv6:
		return Dialer{Forward: fmt.Sprintf("2001:db8:%x:%x::1", i/200, 2+i%200)}
	case runtime.GOOS != "linux":
		return Dialer{}
	}
	return Dialer{From: fmt.Sprintf("127.0.%d.%d", i/200, 2+i%200)}
}

// Dial connects. The connection leaves by a reset, whatever closes it: a FIN
// behind unread data is invisible to the server, and a client that vanishes is
// what most recipes need.
func (d Dialer) Dial(ctx context.Context, addr string) (net.Conn, error) {
	nd := net.Dialer{Timeout: 20 * time.Second, KeepAlive: -1}
	if d.From != "" {
		nd.LocalAddr = &net.TCPAddr{IP: net.ParseIP(d.From)}
	}
	if d.RcvBuf > 0 || d.SndBuf > 0 {
		nd.Control = func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) { setBuffers(fd, d.RcvBuf, d.SndBuf) })
		}
	}
	c, err := nd.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c.(*net.TCPConn).SetLinger(0)
	return c, nil
}

// MeterConn counts what passes, and can read slowly.
type MeterConn struct {
	net.Conn
	In, Out atomic.Int64
}

func (c *MeterConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.In.Add(int64(n))
	return n, err
}

func (c *MeterConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.Out.Add(int64(n))
	return n, err
}

// Trickle reads rate bytes a second from c, in small bites, until it fails or the
// context ends, and returns how much came.
func Trickle(ctx context.Context, c net.Conn, rate int) (total int64, err error) {
	const step = 50 * time.Millisecond
	buf := make([]byte, max(1, rate/int(time.Second/step)))
	for ctx.Err() == nil {
		c.SetReadDeadline(time.Now().Add(step))
		begun := time.Now()
		n, err := c.Read(buf)
		total += int64(n)
		if ne, ok := err.(net.Error); ok && ne.Timeout() {
			continue
		}
		if err != nil {
			return total, err
		}
		Sleep(ctx, step-time.Since(begun))
	}
	return total, ctx.Err()
}
