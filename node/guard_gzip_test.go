// SPDX-License-Identifier: LGPL-3.0-or-later

package node

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/rpc"
	"github.com/stretchr/testify/require"
)

type textService struct{}

func (textService) Text(n int) string { return strings.Repeat("0123456789abcdef", n/16) }

func (textService) Nap(ms int) string {
	time.Sleep(time.Duration(ms) * time.Millisecond)
	return "rested"
}

func textServer(t *testing.T, guarded bool, writeTimeout time.Duration) *httpServer {
	t.Helper()
	timeouts := rpc.DefaultHTTPTimeouts
	timeouts.WriteTimeout = writeTimeout
	h := upstreamHTTPServer(timeouts)
	if guarded {
		g, err := rpc.NewGuard(rpc.DefaultGuardConfig, rpc.GuardEnv{Procs: 2, HTTPBodyLimit: 5 << 20})
		require.NoError(t, err)
		h.guard = &nodeGuard{guard: g, bodyLimit: 5 << 20}
	}
	require.NoError(t, h.setListenAddr("127.0.0.1", 0))
	require.NoError(t, h.enableRPC([]rpc.API{{Namespace: "in", Service: textService{}}}, httpConfig{Vhosts: []string{"localhost"}}))
	require.NoError(t, h.start())
	t.Cleanup(h.stop)
	return h
}

// seen is what a client sees of a reply, decoded.
type seen struct {
	status           int
	encoding, length string
	contentType      string
	body             string
}

func ask(t *testing.T, h *httpServer, method, accept, contentType, body string) (s seen, raw int) {
	t.Helper()
	req, err := http.NewRequest(method, "http://"+h.listenAddr(), strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", contentType)
	if accept != "" {
		req.Header.Set("Accept-Encoding", accept)
	}
	tr := &http.Transport{DisableCompression: true}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	s = seen{status: resp.StatusCode, encoding: resp.Header.Get("Content-Encoding"), contentType: resp.Header.Get("Content-Type"), body: string(text)}
	if s.encoding == "" {
		s.length = resp.Header.Get("Content-Length")
	} else {
		gz, err := gzip.NewReader(bytes.NewReader(text))
		require.NoError(t, err)
		plain, err := io.ReadAll(gz)
		require.NoError(t, err, "the stream must end")
		s.body = string(plain)
	}
	if strings.HasSuffix(s.body, "\n") { // up to v1.17.3 replies end so
		s.body = strings.TrimSuffix(s.body, "\n")
		if s.encoding == "" {
			s.length = strconv.Itoa(len(s.body))
		}
	}
	return s, len(text)
}

// Whoever compresses, a client sees the same.
func TestGuardCompressesAsUpstream(t *testing.T) {
	stock, ours := textServer(t, false, 30*time.Second), textServer(t, true, 30*time.Second)
	call := func(n string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"in_text","params":[` + n + `]}`
	}
	for name, r := range map[string]struct{ method, contentType, body string }{
		"small":        {"POST", "application/json", call("16")},
		"4 KiB":        {"POST", "application/json", call("4096")},
		"large":        {"POST", "application/json", call("3000000")},
		"batch":        {"POST", "application/json", "[" + call("16") + "," + call("100000") + "," + call("16") + "]"},
		"error":        {"POST", "application/json", call(`"x"`)},
		"no method":    {"POST", "application/json", `{"jsonrpc":"2.0","id":1,"method":"in_none"}`},
		"no JSON":      {"POST", "application/json", "{"},
		"nothing":      {"POST", "application/json", ""},
		"notification": {"POST", "application/json", `{"jsonrpc":"2.0","method":"in_text","params":[16]}`},
		"health":       {"GET", "application/json", ""},
		"type":         {"POST", "text/plain", call("16")},
		"put":          {"PUT", "application/json", call("16")},
	} {
		for _, accept := range []string{"", "gzip", "deflate, gzip;q=0.5", "gzip;q=0", "br"} {
			want, wantRaw := ask(t, stock, r.method, accept, r.contentType, r.body)
			got, gotRaw := ask(t, ours, r.method, accept, r.contentType, r.body)
			require.Equal(t, want, got, "%s, %q", name, accept)
			require.LessOrEqual(t, gotRaw, wantRaw+wantRaw/10+64, "%s, %q: compressed worse", name, accept)
		}
	}
}

// A reply that comes late is not compressed, so that its end is not missing when the
// server's time is up.
func TestGuardLateReplyIsNotCompressed(t *testing.T) {
	for _, guarded := range []bool{false, true} {
		h := textServer(t, guarded, time.Second)
		got, _ := ask(t, h, "POST", "gzip", "application/json", `{"jsonrpc":"2.0","id":1,"method":"in_nap","params":[1500]}`)
		require.Equal(t, 200, got.status)
		require.Empty(t, got.encoding)
		require.Contains(t, got.body, "-32002")
		require.NotEmpty(t, got.length)
	}
}
