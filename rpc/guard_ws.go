// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"bufio"
	"net"
	"net/http"
	"time"

	"github.com/gorilla/websocket"
)

// maxOrigin is the longest Origin header of a WebSocket handshake, in bytes. A
// refused one is logged whole.
const maxOrigin = 1 << 10

// admitUpgrade decides about a WebSocket handshake. It returns the writer to
// upgrade, or nil when it has answered the request itself.
func (g *Guard) admitUpgrade(w http.ResponseWriter, r *http.Request, readLimit int64) http.ResponseWriter {
	if g = g.orStandIn(); g == nil {
		return w
	}
	if g.enforces() && len(r.Header.Get("Origin")) > maxOrigin {
		http.Error(w, "origin header too long", http.StatusForbidden)
		return nil
	}
	var key clientKey
	if g.untrusted() {
		if key = g.keys.keyFor(r.RemoteAddr, r.Header); !takePlace(r, key) {
			w.Header().Set("Retry-After", "1")
			answerJSON(w, http.StatusServiceUnavailable, []byte(tooManyConns))
			return nil
		}
	}
	hijacker, ok := w.(http.Hijacker)
	if !ok {
		return w // the upgrade fails, as it should
	}
	return &guardUpgrade{ResponseWriter: w, hijacker: hijacker, g: g, key: key}
}

// guardUpgrade is a response writer whose hijacked connection is a guardConn.
type guardUpgrade struct {
	http.ResponseWriter
	hijacker http.Hijacker
	g        *Guard
	key      clientKey // of the client; the zero key on trusted servers
}

// Hijack implements http.Hijacker.
func (u *guardUpgrade) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := u.hijacker.Hijack()
	if err != nil {
		return nil, nil, err
	}
	if !u.g.untrusted() {
		return &guardConn{Conn: conn}, rw, nil
	}
	in := u.g.newIntake(u.key, conn.SetReadDeadline)
	return &guardConn{Conn: &lingerConn{Conn: conn, in: in}, key: u.key, in: in}, rw, nil
}

func (g *Guard) newIntake(key clientKey, cut func(time.Time) error) *intake {
	return &intake{budget: g.body, key: key, clock: g.clock, idle: g.cfg.Body.Idle, cut: cut, dry: g.cfg.DryRun}
}

// Read implements net.Conn.
func (c *guardConn) Read(p []byte) (int, error) {
	if c.in == nil {
		return c.Conn.Read(p)
	}
	most, err := c.in.before(len(p))
	if err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(p[:most])
	if refused := c.in.after(p[:n]); refused != nil {
		return 0, refused
	}
	return n, err
}

// pause has the reader wait, and returns why reading has ended if it has. A nil
// connection, of another listener's, only waits.
func (c *guardConn) pause(d time.Duration) error {
	if c == nil || c.in == nil {
		time.Sleep(d)
		return nil
	}
	return c.in.pause(d)
}

// SetReadDeadline implements net.Conn.
func (c *guardConn) SetReadDeadline(t time.Time) error {
	if c.in == nil {
		return c.Conn.SetReadDeadline(t)
	}
	return c.in.setDeadline(t, c.Conn.SetReadDeadline)
}

// Close implements net.Conn.
func (c *guardConn) Close() error {
	err := c.Conn.Close()
	if c.in != nil {
		c.in.close()
	}
	return err
}

// taken returns the charge of the message that the library has returned last. The
// caller must close it when it is done with the message.
func (c *guardConn) taken() *charge {
	if c == nil || c.in == nil {
		return nil
	}
	return c.in.next()
}

// refusal says why the intake has ended the connection, if it has, as the close
// frame to send. The refusal is counted, so it is to be asked once.
func (c *guardConn) refusal(books *bodyBooks) (frame []byte, ok bool) {
	if c == nil || c.in == nil {
		return nil, false
	}
	code, reason, ok := c.in.refusal()
	if !ok {
		return nil, false
	}
	books.count(c.in.err)
	return closeFrame(code, reason), true
}

// lingerConn is a connection that, when its reading was refused while the client is
// still sending, is closed only after a while, so that the client reads the close
// frame instead of a reset. What is under way is read and dropped; then the client
// is left to its flow control, since dropping 30 MiB at full speed for each of forty
// clients costs more than reading them did. WebSocket clients read while they write.
type lingerConn struct {
	net.Conn
	in *intake
}

const (
	lingerBytes = 1 << 20 // dropped at most
	lingerQuiet = 2 * time.Second
)

// NetConn returns the connection underneath.
func (c *lingerConn) NetConn() net.Conn { return c.Conn }

// Close implements net.Conn. It does not wait.
func (c *lingerConn) Close() error {
	code, _, refused := c.in.refusal()
	cw, ok := c.Conn.(interface{ CloseWrite() error })
	if !refused || code != websocket.CloseTryAgainLater || !ok {
		return c.Conn.Close()
	}
	go c.linger(cw.CloseWrite)
	return nil
}

func (c *lingerConn) linger(closeWrite func() error) {
	defer c.Conn.Close()
	closeWrite()
	c.Conn.SetReadDeadline(time.Now().Add(drainTime))
	buf := drainPool.Get().(*[8 << 10]byte)
	defer drainPool.Put(buf)
	for left := lingerBytes; left > 0; {
		n, err := c.Conn.Read(buf[:])
		if left -= n; err != nil {
			return
		}
	}
	time.Sleep(lingerQuiet)
}
