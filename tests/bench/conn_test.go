// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
)

const (
	okReply    = `{"jsonrpc":"2.0","id":1,"result":"0x1"}`
	errorReply = `{"jsonrpc":"2.0","id":1,"error":{"code":-32013,"message":"Request queue is full"}}`
)

// The connection reads what net/http writes: with a length, in chunks, refused; and goes
// on after each.
func TestHTTPConn(t *testing.T) {
	large := `{"jsonrpc":"2.0","id":1,"result":"` + strings.Repeat("x", 300<<10) + `"}`
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch string(body) {
		case "chunked":
			io.WriteString(w, large[:100])
			w.(http.Flusher).Flush()
			io.WriteString(w, large[100:])
		case "large":
			io.WriteString(w, large)
		case "error":
			io.WriteString(w, errorReply)
		case "429":
			w.WriteHeader(429)
			io.WriteString(w, errorReply)
		default:
			io.WriteString(w, okReply)
		}
	}))
	defer srv.Close()
	c, err := dialHTTP(srv.Listener.Addr().String(), "")
	require.NoError(t, err)
	defer c.close()
	for range 3 {
		require.NoError(t, c.do(httpRequest([]byte("small"), false)))
		require.NoError(t, c.do(httpRequest([]byte("chunked"), false)))
		require.NoError(t, c.do(httpRequest([]byte("large"), false)))
		require.ErrorIs(t, c.do(httpRequest([]byte("error"), false)), errRefused)
		require.ErrorIs(t, c.do(httpRequest([]byte("429"), false)), errRefused)
	}
}

// The same over WebSocket, with a ping between and all three ways to write a length.
func TestWSConn(t *testing.T) {
	var upgrader websocket.Upgrader
	pongs := make(chan string, 100)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer c.Close()
		c.SetPongHandler(func(s string) error { pongs <- s; return nil })
		for {
			_, body, err := c.ReadMessage()
			if err != nil {
				return
			}
			reply := okReply
			if string(body) == "error" {
				reply = errorReply
			}
			c.WriteControl(websocket.PingMessage, nil, time.Now().Add(time.Second))
			// Several frames, of which the reader must make one message.
			wr, _ := c.NextWriter(websocket.TextMessage)
			io.WriteString(wr, reply)
			io.WriteString(wr, strings.Repeat(" ", len(body)))
			wr.Close()
		}
	}))
	defer srv.Close()
	c, err := dialWS(srv.Listener.Addr().String(), "")
	require.NoError(t, err)
	defer c.close()
	for range 2 {
		for _, n := range []int{1, 125, 126, 65535, 65536, 1 << 20} {
			require.NoError(t, c.do(wsRequest([]byte(strings.Repeat("x", n)))), "%d", n)
		}
		require.ErrorIs(t, c.do(wsRequest([]byte("error"))), errRefused)
	}
	require.NotEmpty(t, pongs)
}

func TestWorkloadNamesDiffer(t *testing.T) {
	seen := make(map[string]bool)
	for _, name := range workloadNames() {
		require.False(t, seen[name], name)
		seen[name] = true
	}
}

func TestReport(t *testing.T) {
	p := newPair("CPU ms/1000 calls", false)
	for i := range 9 {
		p.add(&side{name: "stock"}, 100+float64(i))
		p.add(&side{name: "ours"}, 50+float64(i)/2)
	}
	var b strings.Builder
	writeMarkdown(&b, []Row{{Workload: "http/x/1", Measures: []Measure{p.measure()}, Note: "n"}})
	require.Contains(t, b.String(), "| http/x/1 | CPU ms/1000 calls | 104 | 52.0 | 0.500 [0.500, 0.500] | better n |")
}
