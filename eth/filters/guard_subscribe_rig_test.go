// SPDX-License-Identifier: LGPL-3.0-or-later

package filters

import (
	"cmp"
	"encoding/json"
	"math/big"
	"net"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/event"
	"github.com/ethereum/go-ethereum/params"
	"github.com/ethereum/go-ethereum/rpc"
	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
)

// feedBackend is as much of a node as subscriptions need.
type feedBackend struct {
	Backend
	txs    event.Feed
	logs   event.Feed
	rmLogs event.Feed
	chain  event.Feed
	head   atomic.Pointer[types.Header]
	config *params.ChainConfig // nil: params.TestChainConfig
}

func (b *feedBackend) ChainConfig() *params.ChainConfig {
	return cmp.Or(b.config, params.TestChainConfig)
}

func (b *feedBackend) CurrentHeader() *types.Header { return b.head.Load() }

func (b *feedBackend) HistoryPruningCutoff() uint64 { return 0 }

func (b *feedBackend) SubscribeNewTxsEvent(ch chan<- core.NewTxsEvent) event.Subscription {
	return b.txs.Subscribe(ch)
}

func (b *feedBackend) SubscribeLogsEvent(ch chan<- []*types.Log) event.Subscription {
	return b.logs.Subscribe(ch)
}

func (b *feedBackend) SubscribeRemovedLogsEvent(ch chan<- core.RemovedLogsEvent) event.Subscription {
	return b.rmLogs.Subscribe(ch)
}

func (b *feedBackend) SubscribeChainEvent(ch chan<- core.ChainEvent) event.Subscription {
	return b.chain.Subscribe(ch)
}

type filterServer struct {
	t       *testing.T
	backend *feedBackend
	api     *FilterAPI
	server  *rpc.Server
	url     string
}

func testHeader(n uint64) *types.Header {
	return &types.Header{Number: new(big.Int).SetUint64(n), Difficulty: new(big.Int), BaseFee: big.NewInt(1000), GasLimit: 30_000_000}
}

func newFilterServer(t *testing.T, cfg rpc.GuardConfig) *filterServer {
	cfg.Client.Local = true
	guard, err := rpc.NewGuard(cfg, rpc.GuardEnv{Procs: 2, HTTPBodyLimit: 5 << 20})
	require.NoError(t, err)
	s := &filterServer{t: t, backend: new(feedBackend)}
	s.backend.head.Store(testHeader(1))
	s.api = newPlainAPI(NewFilterSystem(s.backend, Config{}))
	srv := newPlainServer()
	srv.SetGuard(guard)
	s.server = srv
	require.NoError(t, srv.RegisterName("eth", s.api))
	hs := httptest.NewServer(anyOrigin(srv))
	s.url = "ws:" + strings.TrimPrefix(hs.URL, "http:")
	t.Cleanup(func() {
		srv.Stop()
		hs.Close()
	})
	return s
}

type wireClient struct {
	t *testing.T
	*websocket.Conn
	id   int
	kept []wireMessage // notifications that came while a reply was awaited
}

type wireMessage struct {
	raw    string
	ID     int             `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int
		Message string
		Data    any
	} `json:"error"`
	Params struct {
		Subscription string          `json:"subscription"`
		Result       json.RawMessage `json:"result"`
	} `json:"params"`
}

func (s *filterServer) dial(rcvbuf int) *wireClient {
	s.t.Helper()
	dialer := websocket.Dialer{NetDial: func(network, addr string) (net.Conn, error) {
		conn, err := net.Dial(network, addr)
		if err == nil && rcvbuf > 0 {
			conn.(*net.TCPConn).SetReadBuffer(rcvbuf)
		}
		return conn, err
	}}
	conn, _, err := dialer.Dial(s.url, nil)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { conn.Close() })
	return &wireClient{t: s.t, Conn: conn}
}

func (c *wireClient) read() wireMessage {
	c.t.Helper()
	if len(c.kept) > 0 {
		msg := c.kept[0]
		c.kept = c.kept[1:]
		return msg
	}
	return c.readWire()
}

func (c *wireClient) readWire() (msg wireMessage) {
	c.t.Helper()
	c.SetReadDeadline(time.Now().Add(20 * time.Second))
	_, data, err := c.ReadMessage()
	require.NoError(c.t, err)
	require.NoError(c.t, json.Unmarshal(data, &msg))
	msg.raw = strings.TrimSuffix(string(data), "\n") // upstream's ends so up to v1.17.3
	return msg
}

func (c *wireClient) call(method string, params ...any) wireMessage {
	c.t.Helper()
	c.id++
	if params == nil {
		params = []any{}
	}
	require.NoError(c.t, c.WriteJSON(map[string]any{"jsonrpc": "2.0", "id": c.id, "method": method, "params": params}))
	for {
		msg := c.readWire()
		if msg.ID == c.id {
			return msg
		}
		c.kept = append(c.kept, msg)
	}
}

func (c *wireClient) make(method string, params ...any) (id string) {
	c.t.Helper()
	reply := c.call(method, params...)
	require.Nil(c.t, reply.Error)
	require.NoError(c.t, json.Unmarshal(reply.Result, &id))
	return id
}

func testTxs(n, size int) []*types.Transaction {
	txs := make([]*types.Transaction, n)
	for i := range txs {
		txs[i] = types.NewTx(&types.DynamicFeeTx{
			ChainID: big.NewInt(1), Nonce: uint64(i), GasFeeCap: big.NewInt(3000), GasTipCap: big.NewInt(1), Gas: 21000, To: &common.Address{1}, Value: new(big.Int), Data: make([]byte, size),
		})
	}
	return txs
}

// script is a stretch of a chain's life, with a reorg in the middle.
func (s *filterServer) script() {
	added := testLogs(2, 5)
	s.backend.chain.Send(chainEvent(testHeader(2)))
	s.backend.logs.Send(added)
	s.backend.txs.Send(core.NewTxsEvent{Txs: testTxs(3, 10)})
	s.settle()
	removed := make([]*types.Log, len(added))
	for i, log := range added {
		gone := *log
		gone.Removed = true
		removed[i] = &gone
	}
	s.backend.rmLogs.Send(core.RemovedLogsEvent{Logs: removed})
	s.settle()
	s.backend.head.Store(testHeader(2))
	s.backend.logs.Send(testLogs(2, 3))
	s.backend.chain.Send(chainEvent(testHeader(2)))
	s.backend.txs.Send(core.NewTxsEvent{Txs: testTxs(2, 5000)})
	s.settle()
	s.backend.chain.Send(chainEvent(testHeader(3)))
}

// settle returns when the event loop has taken what was sent: its feeds are
// separate, and upstream keeps no order between them.
func (s *filterServer) settle() {
	es := s.api.events
	s.eventually("event loop", func() bool {
		return len(es.txsCh)+len(es.logsCh)+len(es.rmLogsCh)+len(es.chainCh) == 0
	})
	es.SubscribeNewHeads(make(chan *types.Header, 100)).Unsubscribe()
}

func (s *filterServer) eventually(what string, ok func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); runtime.Gosched() {
		if time.Now().After(deadline) {
			s.t.Fatal("time-out: " + what)
		}
	}
}
