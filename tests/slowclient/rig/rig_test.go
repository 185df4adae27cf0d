// SPDX-License-Identifier: LGPL-3.0-or-later

package rig

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	ServeEchoIfAsked()
	os.Exit(m.Run())
}

func TestParseFlags(t *testing.T) {
	for name, help := range map[string]string{
		"geth": "   API AND CONSOLE\n    --http                  (default: false)   ($GETH_HTTP)\n          Enable --ws too\n    --http.port value\n    --rpc.http-body-limit value\n    --verbosity value, -v value\n",
		"bor":  "- ```http```: Enable (default: false)\n  -http.port=8545\n   --rpc.http-body-limit <n>\n",
	} {
		got := parseFlags([]byte(help))
		for _, want := range []string{"http", "http.port", "rpc.http-body-limit"} {
			if name == "bor" && want == "http" {
				continue // its real help is checked through the server command
			}
			require.True(t, got[want], "%s: %s in %v", name, want, got)
		}
		require.False(t, got["ws"], "a flag that only a description names")
	}
}

func TestFilterLeavesUnknownFlagsOut(t *testing.T) {
	b := &Binary{flags: map[string]bool{"http": true, "rpc.guard": true}}
	args, dropped := b.filter([]string{"http", "rpc.guard=false", "rpc.body.budget=1"})
	require.Equal(t, []string{"--http", "--rpc.guard=false"}, args)
	require.Equal(t, []string{"rpc.body.budget=1"}, dropped)
}

func TestParseMetrics(t *testing.T) {
	m, err := parseMetrics(strings.NewReader("# TYPE a gauge\na 3\nb_total 1.5e3\nc {quantile=\"0.5\"} 7\n"))
	require.NoError(t, err)
	require.Equal(t, Metrics{"a": 3, "b_total": 1500}, m)
}

func TestSeriesQuantile(t *testing.T) {
	var s Series
	require.Zero(t, s.Quantile(0.99))
	for i := 100; i > 0; i-- {
		s.Add(time.Duration(i))
	}
	require.EqualValues(t, 50, s.Quantile(0.5))
	require.EqualValues(t, 99, s.Quantile(0.99))
	require.EqualValues(t, 100, s.Max())
	require.EqualValues(t, 1, s.Quantile(0))
}

// Of few values the p99 is the largest but one: a fair bound is one of as many.
func TestWorstQuantile(t *testing.T) {
	var s Series
	for i := range 300 {
		s.Add(time.Duration(1 + i%10)) // nothing is slow by itself
	}
	s.v[120], s.v[160], s.v[280] = 70, 60, 90
	v := s.Values()
	require.EqualValues(t, 10, WorstQuantile(v, 300, 0.99), "the fourth of all")
	require.EqualValues(t, 60, WorstQuantile(v, 150, 0.99))
	require.EqualValues(t, 90, WorstQuantile(v, 20, 0.99), "of twenty it is the largest")
	require.EqualValues(t, WorstQuantile(v, 300, 0.99), WorstQuantile(v, 5000, 0.99))
	require.Zero(t, WorstQuantile(nil, 10, 0.99))
	require.Zero(t, WorstQuantile(v, 0, 0.99))
	s.Quantile(0.5)
	require.EqualValues(t, 70, v[120], "a copy, in the order it came")
}

// The frames we write ourselves must be what a WebSocket server reads, at every
// length where the header's form changes.
func TestFrames(t *testing.T) {
	var up websocket.Upgrader
	got := make(chan []byte, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := up.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer c.Close()
		for {
			_, msg, err := c.ReadMessage()
			if err != nil {
				return
			}
			got <- msg
		}
	}))
	defer srv.Close()
	ws, err := DialWS(context.Background(), srv.Listener.Addr().String(), Dialer{})
	require.NoError(t, err)
	defer ws.Abort()
	for _, n := range []int{0, 1, 125, 126, 127, 65535, 65536, 100000} {
		payload := []byte(strings.Repeat("z", n))
		half := n / 2
		_, err := ws.Net.Write(append(Frame(false, 1, payload[:half]), Frame(true, 0, payload[half:])...))
		require.NoError(t, err)
		require.Equal(t, payload, <-got)
	}
}

// A client that leaves must be seen to leave at once: by a reset, although the
// server's last answer lies unread.
func TestDialerLeavesByReset(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	seen := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			seen <- err
			return
		}
		c.Write([]byte("unread"))
		_, err = io.Copy(io.Discard, c)
		seen <- err
	}()
	c, err := Dialer{}.Dial(context.Background(), l.Addr().String())
	require.NoError(t, err)
	_, err = bufio.NewReader(c).ReadByte()
	require.NoError(t, err)
	c.Close()
	require.ErrorContains(t, <-seen, "reset")
}

func TestPoliteNoticesGapsAndDisorder(t *testing.T) {
	a, b, c := common.Hash{1}, common.Hash{2}, common.Hash{3}
	for name, got := range map[string][]common.Hash{"missing": {a, b}, "swapped": {a, c, b}, "twice": {a, b, c, c}} {
		p := &Polite{sent: []common.Hash{a, b, c}}
		p.compareLocked("logs", got)
		require.Len(t, p.problems, 1, name)
	}
	p := &Polite{sent: []common.Hash{a, b, c}}
	p.compareLocked("logs", []common.Hash{a, b, c})
	require.Empty(t, p.problems)

	kinds := map[string]string{"0x1": "newHeads"}
	head := func(n, parent string) *Reply {
		return &Reply{Method: "eth_subscription", Params: []byte(`{"subscription":"0x1","result":{"number":"` + n + `","hash":"` +
			common.HexToHash(n).Hex() + `","parentHash":"` + common.HexToHash(parent).Hex() + `"}}`)}
	}
	p = new(Polite)
	for _, h := range []*Reply{head("0x1", "0x0"), head("0x2", "0x1"), head("0x4", "0x3")} {
		p.event(kinds, h)
	}
	require.Equal(t, []string{"head 4 after 2"}, p.problems)
}

func TestDecodeReplies(t *testing.T) {
	rs, err := DecodeReplies([]byte(" [{\"id\":1},{\"id\":2,\"error\":{\"code\":-32013,\"message\":\"x\"}}]"))
	require.NoError(t, err)
	require.Len(t, rs, 2)
	require.Equal(t, -32013, rs[1].Code())
	_, err = DecodeReplies([]byte("nonsense"))
	require.Error(t, err)
}

func TestEchoServerAnswers(t *testing.T) {
	addr, err := echoAddr()
	require.NoError(t, err)
	r, err := NewHTTP(addr, Dialer{}).Call(context.Background(), "eth_blockNumber")
	require.NoError(t, err)
	require.Equal(t, "0x0", r.Text())
}

// What outgrows its limit is ended, by its own process id.
func TestWatchEndsWhatGrows(t *testing.T) {
	if _, ok := Look(os.Getpid()); !ok {
		t.Skip("no /proc")
	}
	n := startTestProcess(t)
	w := NewWatch(n, 1)
	select {
	case <-n.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("it goes on")
	}
	w.Stop()
	require.Positive(t, w.Killed())
	require.False(t, n.Alive())
}
