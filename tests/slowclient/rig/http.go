// SPDX-License-Identifier: LGPL-3.0-or-later

package rig

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// HTTP is a well-behaved client of one server, with a pool of connections.
type HTTP struct {
	addr    string
	path    string
	forward string
	tr      *http.Transport
}

// NewHTTP makes a client of the server at addr. Nothing is dialed yet.
func NewHTTP(addr string, d Dialer) *HTTP {
	return &HTTP{addr: addr, path: "/", forward: d.Forward, tr: &http.Transport{
		DialContext:         func(ctx context.Context, _, a string) (net.Conn, error) { return d.Dial(ctx, a) },
		MaxIdleConnsPerHost: 64,
		DisableCompression:  true,
	}}
}

// Close ends the idle connections.
func (c *HTTP) Close() { c.tr.CloseIdleConnections() }

// Post sends a body and returns status, headers and the whole answer.
func (c *HTTP) Post(ctx context.Context, body []byte, header ...string) (int, http.Header, []byte, error) {
	return c.Do(ctx, http.MethodPost, bytes.NewReader(body), header...)
}

// Do sends a request with any method. Headers are pairs of name and value.
func (c *HTTP) Do(ctx context.Context, method string, body io.Reader, header ...string) (int, http.Header, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.addr+c.path, body)
	if err != nil {
		return 0, nil, nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if c.forward != "" {
		req.Header.Set("X-Forwarded-For", c.forward)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.tr.RoundTrip(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, b, err
}

// Call calls a method.
func (c *HTTP) Call(ctx context.Context, method string, params ...any) (*Reply, error) {
	_, r, err := c.Send(ctx, Call(1, method, params...))
	return r, err
}

// Send posts one encoded call.
func (c *HTTP) Send(ctx context.Context, call []byte) (status int, r *Reply, err error) {
	status, _, body, err := c.Post(ctx, call)
	if err != nil {
		return status, nil, err
	}
	r = new(Reply)
	if err := json.Unmarshal(body, r); err != nil {
		return status, nil, fmt.Errorf("status %d: not JSON: %w", status, err)
	}
	return status, r, nil
}

// SendBatch posts an encoded batch.
func (c *HTTP) SendBatch(ctx context.Context, batch []byte) (status int, rs []*Reply, err error) {
	status, _, body, err := c.Post(ctx, batch)
	if err != nil {
		return status, nil, err
	}
	if err := json.Unmarshal(body, &rs); err != nil {
		return status, nil, fmt.Errorf("status %d: not an array: %.200s", status, body)
	}
	return status, rs, nil
}

// RawHTTP is one HTTP/1.1 connection on which a recipe writes what it likes.
type RawHTTP struct {
	net.Conn
	host string
	br   *bufio.Reader
	fwd  string
}

// DialRaw connects.
func DialRaw(ctx context.Context, addr string, d Dialer) (*RawHTTP, error) {
	c, err := d.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	return &RawHTTP{Conn: c, host: addr, br: bufio.NewReader(c), fwd: d.Forward}, nil
}

// Head writes a request's line and headers; length < 0 announces chunks.
func (c *RawHTTP) Head(method string, length int64, header ...string) error {
	b := fmt.Appendf(nil, "%s / HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n", method, c.host)
	if length < 0 {
		b = append(b, "Transfer-Encoding: chunked\r\n"...)
	} else {
		b = fmt.Appendf(b, "Content-Length: %d\r\n", length)
	}
	if c.fwd != "" {
		b = fmt.Appendf(b, "X-Forwarded-For: %s\r\n", c.fwd)
	}
	for i := 0; i+1 < len(header); i += 2 {
		b = fmt.Appendf(b, "%s: %s\r\n", header[i], header[i+1])
	}
	_, err := c.Write(append(b, "\r\n"...))
	return err
}

// Begun waits for the first byte of an answer, which is left to be read.
func (c *RawHTTP) Begun(limit time.Duration) bool {
	c.SetReadDeadline(time.Now().Add(limit))
	defer c.SetReadDeadline(time.Time{})
	_, err := c.br.Peek(1)
	return err == nil
}

// Request writes a whole POST.
func (c *RawHTTP) Request(body []byte) error {
	if err := c.Head(http.MethodPost, int64(len(body))); err != nil {
		return err
	}
	_, err := c.Write(body)
	return err
}

// Response reads one answer, whole, within the time given.
func (c *RawHTTP) Response(limit time.Duration) (status int, header http.Header, body []byte, err error) {
	c.SetReadDeadline(time.Now().Add(limit))
	defer c.SetReadDeadline(time.Time{})
	resp, err := http.ReadResponse(c.br, nil)
	if err != nil {
		return 0, nil, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, body, err
}
