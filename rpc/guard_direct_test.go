// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ethereum/go-ethereum/log"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
)

type directService struct {
	seen func(context.Context)
}

func (s directService) Echo(ctx context.Context, text string) string {
	s.seen(ctx)
	return text
}
func (s directService) Peer(ctx context.Context) PeerInfo { return PeerInfoFromContext(ctx) }
func (directService) Fail() (string, error)               { return "", failure{} }
func (directService) Crash()                              { panic("crash") }

// Wait returns after its context has ended, and a while.
func (s directService) Wait(ctx context.Context) error {
	<-ctx.Done()
	time.Sleep(time.Second)
	s.seen(ctx)
	return errors.New("too late")
}

type failure struct{}

func (failure) Error() string  { return "no such thing" }
func (failure) ErrorCode() int { return 77 }
func (failure) ErrorData() any { return map[string]int{"thing": 1} }

func newDirectServer(t *testing.T, guarded bool, seen func(context.Context)) *Server {
	srv := newPlainServer()
	t.Cleanup(srv.Stop)
	if guarded {
		g, err := NewGuard(DefaultGuardConfig, GuardEnv{Procs: 2, HTTPBodyLimit: defaultBodyLimit})
		require.NoError(t, err)
		srv.SetGuard(g)
	}
	require.NoError(t, srv.RegisterName("test", directService{seen}))
	return srv
}

func sendDirect(ctx context.Context, srv *Server, body string, change func(*http.Request)) *recordedReply {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://node/", strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	r.RemoteAddr, r.Host = "192.0.2.1:1000", "node"
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("Origin", "there")
	if change != nil {
		change(r)
	}
	w := &recordedReply{header: make(http.Header), status: http.StatusOK}
	srv.ServeHTTP(w, r)
	return w
}

// Whatever is sent, the answer and its headers are those of upstream, and the log too.
func TestGuardDirectAnswersAsUpstream(t *testing.T) {
	const call = `{"jsonrpc":"2.0","id":1,"method":"test_echo","params":["a"]}`
	bodies := []string{
		call, " " + call + "\n", call + "x", "", "null", "[]", "[" + call + "]", "{}", `"text"`,
		`{"jsonrpc":"2.0","id":"x\"y","method":"test_echo","params":["\u0041"]}`,
		`{"jsonrpc":"2.0","id":null,"method":"test_echo","params":["a"]}`,
		`{"jsonrpc":"2.0","id":{},"method":"test_echo","params":["a"]}`,
		`{"jsonrpc":"2.0","method":"test_echo","params":["a"]}`,
		`{"jsonrpc":"1.0","id":1,"method":"test_echo","params":["a"]}`,
		`{"id":1,"method":"test_echo","params":["a"]}`,
		`{"jsonrpc":"2.0","id":1,"method":"test_\u0065cho","params":["a"]}`,
		`{"jsonrpc":"2.0","id":1,"METHOD":"test_echo","params":["a"]}`,
		`{"jsonrpc":"2.0","id":1,"id":2,"method":"test_echo","params":["a"]}`,
		`{"jsonrpc":"2.0","id":1,"method":"test_echo","params":[]}`,
		`{"jsonrpc":"2.0","id":1,"method":"test_echo","params":[1]}`,
		`{"jsonrpc":"2.0","id":1,"method":"test_echo","params":{"a":1}}`,
		`{"jsonrpc":"2.0","id":1,"method":"test_echo"}`,
		`{"jsonrpc":"2.0","id":1,"method":"test_fail"}`,
		`{"jsonrpc":"2.0","id":1,"method":"test_crash"}`,
		`{"jsonrpc":"2.0","id":1,"method":"test_peer","params":null}`,
		`{"jsonrpc":"2.0","id":1,"method":"test_none"}`,
		`{"jsonrpc":"2.0","id":1,"method":"` + strings.Repeat("m", 3000) + `"}`,
		`{"jsonrpc":"2.0","id":1,"method":"test_subscribe","params":["x"]}`,
		`{"jsonrpc":"2.0","id":1,"method":"test_unsubscribe","params":["x"]}`,
		`{"jsonrpc":"2.0","id":1,"result":"a"}`,
	}
	var entries []string
	for _, body := range bodies {
		if json.Valid([]byte(body)) && body[0] != '[' && !strings.Contains(body, "crash") { // its stack hides what is logged after it
			entries = append(entries, body)
		}
	}
	bodies = append(bodies, "["+strings.Join(entries, ",")+"]", `[{"jsonrpc":"2.0","id":1,"method":"test_crash"},`+call+`]`)
	changes := map[string]func(*http.Request){
		"as usual":         nil,
		"GET":              func(r *http.Request) { r.Method = http.MethodGet },
		"PUT":              func(r *http.Request) { r.Method = http.MethodPut },
		"OPTIONS":          func(r *http.Request) { r.Method = http.MethodOptions },
		"text":             func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") },
		"charset":          func(r *http.Request) { r.Header.Set("Content-Type", contentType+"; charset=utf-8") },
		"no type":          func(r *http.Request) { r.Header.Del("Content-Type") },
		"length not known": func(r *http.Request) { r.ContentLength = -1 },
	}
	old := log.Root()
	defer log.SetDefault(old)
	for name, change := range changes {
		for _, body := range bodies {
			var replies [2]*recordedReply
			var logs [2]string
			for i := range replies {
				var text bytes.Buffer
				log.SetDefault(log.NewLogger(slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: withoutTimes})))
				replies[i] = sendDirect(t.Context(), newDirectServer(t, i == 1, func(context.Context) {}), body, change)
				logs[i], _, _ = strings.Cut(text.String(), "goroutine") // the rest is a stack
			}
			what := name + ": " + body[:min(len(body), 80)]
			require.Equal(t, replies[0].status, replies[1].status, what)
			require.Equal(t, replies[0].header, replies[1].header, what)
			require.Equal(t, replies[0].body.String(), replies[1].body.String(), what)
			require.Equal(t, logs[0], logs[1], what)
		}
	}
}

func withoutTimes(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey || a.Key == "duration" {
		return slog.Attr{}
	}
	return a
}

// A call takes the short way over HTTP and on streams, where its context has no span at
// all, unless somebody wants to see debug messages. Goes red without the hook of
// handleNonBatchCall.
func TestGuardDirectWay(t *testing.T) {
	const call = `{"jsonrpc":"2.0","id":1,"method":"test_echo","params":["a"]}`
	var ctx context.Context
	short := func() bool { return trace.SpanFromContext(ctx) != theQuietSpan }
	srv := newDirectServer(t, true, func(c context.Context) { ctx = c })
	overHTTP := func() { sendDirect(t.Context(), srv, call, nil) }
	overStream := func() {
		here, there := net.Pipe()
		defer here.Close()
		go srv.ServeCodec(NewCodec(there), 0)
		here.Write([]byte(call))
		here.Read(make([]byte, 1000))
	}
	overHTTP()
	require.True(t, short())
	overStream()
	require.True(t, short())

	old := log.Root()
	defer log.SetDefault(old)
	var text bytes.Buffer
	log.SetDefault(log.NewLogger(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug})))
	overHTTP()
	require.False(t, short())
	require.Contains(t, text.String(), "Served test_echo")
	text.Reset()
	overStream()
	require.False(t, short())
}

// A call whose time is up is answered once, while its method goes on; its context ends
// then, and the request only after the method.
func TestGuardDirectTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended time.Duration
		start := time.Now()
		srv := newDirectServer(t, true, func(ctx context.Context) {
			require.ErrorIs(t, ctx.Err(), context.Canceled)
			ended = time.Since(start)
		})
		server := &http.Server{WriteTimeout: 5 * time.Second}
		ctx := context.WithValue(t.Context(), http.ServerContextKey, server)
		w := sendDirect(ctx, srv, `{"jsonrpc":"2.0","id":1,"method":"test_wait"}`, nil)
		require.Equal(t, `{"jsonrpc":"2.0","id":1,"error":{"code":-32002,"message":"request timed out"}}`, w.body.String())
		require.Equal(t, "identity", w.header.Get("Transfer-Encoding"))
		require.Equal(t, 4900*time.Millisecond+time.Second, ended)
		require.Equal(t, ended, time.Since(start))
		srv.Stop()
	})
}

// A method's context ends when its client leaves, and in any case with the call.
func TestGuardDirectContextEnds(t *testing.T) {
	var mu sync.Mutex
	var kept context.Context
	srv := newDirectServer(t, true, func(ctx context.Context) {
		mu.Lock()
		defer mu.Unlock()
		kept = ctx
	})
	sendDirect(t.Context(), srv, `{"jsonrpc":"2.0","id":1,"method":"test_echo","params":["a"]}`, nil)
	mu.Lock()
	require.ErrorIs(t, kept.Err(), context.Canceled)
	mu.Unlock()

	ctx, leave := context.WithCancel(t.Context())
	time.AfterFunc(0, leave)
	sendDirect(ctx, srv, `{"jsonrpc":"2.0","id":1,"method":"test_wait"}`, nil) // returns
}
