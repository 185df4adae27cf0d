// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// The generator runs on the node's machine, so what it uses the node lacks. These
// connections know their request beforehand and look at no more of a reply than is needed
// to tell a result from an error.

// errRefused is a reply that is not a result: an error, or a status other than 200.
var errRefused = errors.New("refused")

// conn is one connection with one call under way at most.
type conn interface {
	// do sends the request and reads the reply. errRefused leaves the connection
	// usable, other errors do not.
	do(request []byte) error
	close()
}

const (
	dialTimeout = 10 * time.Second
	callTimeout = 30 * time.Second
)

// dialLocal connects, from the given address if it is not empty.
func dialLocal(addr, from string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout}
	if from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	return d.Dial("tcp", addr)
}

// hasResult reports whether a reply, of which b is the beginning, is a result.
func hasResult(b []byte) bool { return bytes.Contains(b, []byte(`"result"`)) }

// headLength is how much of a reply is looked at: the envelope and what comes first.
const headLength = 64

type httpConn struct {
	c net.Conn
	r *bufio.Reader
}

func dialHTTP(addr, from string) (conn, error) {
	c, err := dialLocal(addr, from)
	if err != nil {
		return nil, err
	}
	return &httpConn{c, bufio.NewReaderSize(c, 32<<10)}, nil
}

// httpRequest is the request with body for do.
func httpRequest(body []byte, gzip bool) []byte {
	accept := ""
	if gzip {
		accept = "Accept-Encoding: gzip\r\n"
	}
	head := fmt.Sprintf("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n", accept, len(body))
	return append([]byte(head), body...)
}

func (h *httpConn) do(request []byte) error {
	h.c.SetDeadline(time.Now().Add(callTimeout))
	if _, err := h.c.Write(request); err != nil {
		return err
	}
	line, err := h.r.ReadSlice('\n')
	if err != nil {
		return err
	}
	ok := bytes.HasPrefix(line, []byte("HTTP/1.1 200"))
	length, chunked, gzip := -1, false, false
	for {
		if line, err = h.r.ReadSlice('\n'); err != nil {
			return err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(": "))
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			length, _ = strconv.Atoi(string(value))
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			chunked = true
		case bytes.EqualFold(name, []byte("Content-Encoding")):
			gzip = true
		}
	}
	var result bool
	switch {
	case chunked:
		result, err = h.chunks()
	case length >= 0:
		result, err = h.body(length)
	default:
		return errors.New("reply without a length")
	}
	if err != nil {
		return err
	}
	if !ok || !gzip && !result {
		return errRefused
	}
	return nil
}

func (h *httpConn) body(n int) (bool, error) {
	head, err := h.r.Peek(min(n, headLength))
	if err != nil {
		return false, err
	}
	result := hasResult(head)
	_, err = h.r.Discard(n)
	return result, err
}

func (h *httpConn) chunks() (result bool, err error) {
	for first := true; ; first = false {
		line, err := h.r.ReadSlice('\n')
		if err != nil {
			return false, err
		}
		n, err := strconv.ParseInt(string(bytes.TrimRight(line, "\r\n")), 16, 32)
		if err != nil {
			return false, err
		}
		r, err := h.body(int(n))
		if err != nil {
			return false, err
		}
		if first {
			result = r
		}
		if _, err := h.r.Discard(2); err != nil || n == 0 {
			return result, err
		}
	}
}

func (h *httpConn) close() { h.c.Close() }

type wsConn struct {
	c net.Conn
	r *bufio.Reader
}

func dialWS(addr, from string) (*wsConn, error) {
	c, err := dialLocal(addr, from)
	if err != nil {
		return nil, err
	}
	w := &wsConn{c, bufio.NewReaderSize(c, 16<<10)}
	c.SetDeadline(time.Now().Add(dialTimeout))
	_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: cnBjZ3VhcmQtYmVuY2gtMQ==\r\n\r\n")
	for first := true; err == nil; first = false {
		var line []byte
		if line, err = w.r.ReadSlice('\n'); err != nil {
			break
		}
		if first && !bytes.HasPrefix(line, []byte("HTTP/1.1 101")) {
			err = fmt.Errorf("no upgrade: %s", bytes.TrimSpace(line))
		}
		if len(bytes.TrimSpace(line)) == 0 {
			return w, nil
		}
	}
	c.Close()
	return nil, err
}

// wsRequest is a text frame for do. It is masked with zeros, which changes nothing.
func wsRequest(body []byte) []byte {
	f := []byte{0x81}
	switch n := len(body); {
	case n < 126:
		f = append(f, 0x80|byte(n))
	case n < 1<<16:
		f = binary.BigEndian.AppendUint16(append(f, 0x80|126), uint16(n))
	default:
		f = binary.BigEndian.AppendUint64(append(f, 0x80|127), uint64(n))
	}
	return append(append(f, 0, 0, 0, 0), body...)
}

// next reads a message's frames and returns whether the message is a result, and the
// bytes of its head, valid until the next call.
func (w *wsConn) next() (head []byte, err error) {
	for first := true; ; {
		b, err := w.r.Peek(2)
		if err != nil {
			return nil, err
		}
		op, fin, n, skip := b[0]&15, b[0]&0x80 != 0, uint64(b[1]&127), 2
		switch n {
		case 126:
			skip = 4
			if b, err = w.r.Peek(4); err == nil {
				n = uint64(binary.BigEndian.Uint16(b[2:]))
			}
		case 127:
			skip = 10
			if b, err = w.r.Peek(10); err == nil {
				n = binary.BigEndian.Uint64(b[2:])
			}
		}
		if err != nil {
			return nil, err
		}
		w.r.Discard(skip)
		if op == 8 {
			return nil, io.EOF
		}
		if op < 8 && first {
			first = false
			p, err := w.r.Peek(int(min(n, 4*headLength)))
			if err != nil {
				return nil, err
			}
			head = append(head[:0], p...)
		}
		if _, err := w.r.Discard(int(n)); err != nil {
			return nil, err
		}
		if op == 9 {
			w.c.Write([]byte{0x8a, 0x80, 0, 0, 0, 0}) // pong
		}
		if op < 8 && fin {
			return head, nil
		}
	}
}

func (w *wsConn) do(request []byte) error {
	w.c.SetDeadline(time.Now().Add(callTimeout))
	if _, err := w.c.Write(request); err != nil {
		return err
	}
	head, err := w.next()
	if err != nil {
		return err
	}
	if !hasResult(head[:min(len(head), headLength)]) {
		return errRefused
	}
	return nil
}

func (w *wsConn) close() { w.c.Close() }
