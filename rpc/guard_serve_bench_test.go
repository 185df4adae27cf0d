// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"bytes"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
)

// discardResponse takes a reply and keeps nothing of it.
type discardResponse struct{ header http.Header }

func (d *discardResponse) Header() http.Header         { return d.header }
func (d *discardResponse) Write(b []byte) (int, error) { return len(b), nil }
func (d *discardResponse) WriteHeader(int)             {}

type serveBenchService struct{ large string }

func (s *serveBenchService) Small(n int) int { return n }
func (s *serveBenchService) Large() string   { return s.large }

// benchTransaction is about what a transaction of a full block is to the encoder.
type benchTransaction struct {
	BlockHash common.Hash     `json:"blockHash"`
	Number    *hexutil.Big    `json:"blockNumber"`
	From, To  *common.Address `json:",omitempty"`
	Gas       hexutil.Uint64  `json:"gas"`
	Price     *hexutil.Big    `json:"gasPrice"`
	Hash      common.Hash     `json:"hash"`
	Input     hexutil.Bytes   `json:"input"`
	R, S      *hexutil.Big
}

// Block returns what a block of 240 transactions is encoded from, some 140 KB of text.
func (s *serveBenchService) Block() map[string]any {
	txs := make([]any, 240)
	for i := range txs {
		n := (*hexutil.Big)(big.NewInt(int64(i) << 32))
		txs[i] = &benchTransaction{Number: n, From: new(common.Address), To: new(common.Address), Price: n, R: n, S: n}
	}
	return map[string]any{"number": hexutil.Uint64(1), "hash": common.Hash{1}, "transactions": txs}
}

// benchServers are a server without a guard and one with the guard's defaults, as what
// the guard costs is the difference.
func benchServers(b *testing.B) map[string]*Server {
	servers := make(map[string]*Server)
	for _, name := range []string{"upstream", "guarded"} {
		srv := newPlainServer()
		if err := srv.RegisterName("test", &serveBenchService{strings.Repeat("x", 100<<10)}); err != nil {
			b.Fatal(err)
		}
		if name == "guarded" {
			g, err := NewGuard(DefaultGuardConfig, GuardEnv{Procs: 2, HTTPBodyLimit: defaultBodyLimit})
			if err != nil {
				b.Fatal(err)
			}
			srv.SetGuard(g)
		}
		b.Cleanup(srv.Stop)
		servers[name] = srv
	}
	return servers
}

func benchBodies() map[string]string {
	const one = `{"jsonrpc":"2.0","id":1,"method":"test_small","params":[7]}`
	return map[string]string{
		"call":     one,
		"batch100": "[" + strings.Repeat(one+",", 99) + one + "]",
		"large":    `{"jsonrpc":"2.0","id":1,"method":"test_large"}`,
		"block":    `{"jsonrpc":"2.0","id":1,"method":"test_block"}`,
	}
}

// BenchmarkServeHTTP is one request, all of its way through the server but the network.
func BenchmarkServeHTTP(b *testing.B) {
	for kind, body := range benchBodies() {
		for name, srv := range benchServers(b) {
			b.Run(kind+"/"+name, func(b *testing.B) {
				req, err := http.NewRequest(http.MethodPost, "http://localhost/", nil)
				if err != nil {
					b.Fatal(err)
				}
				req.Header.Set("content-type", contentType)
				req.RemoteAddr = "192.0.2.1:1000"
				w := &discardResponse{make(http.Header)}
				b.ReportAllocs()
				for b.Loop() {
					clear(w.header)
					r := *req
					r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
					srv.ServeHTTP(w, &r)
				}
			})
		}
	}
}

// BenchmarkServeStream is one request and its reply on a stream connection.
func BenchmarkServeStream(b *testing.B) {
	for kind, body := range benchBodies() {
		for name, srv := range benchServers(b) {
			b.Run(kind+"/"+name, func(b *testing.B) {
				here, there := net.Pipe()
				defer here.Close()
				go srv.ServeCodec(NewCodec(there), 0)
				request := []byte(body + "\n")
				buf := make([]byte, 256<<10)
				b.ReportAllocs()
				for b.Loop() {
					here.Write(request)
					for { // a reply ends with a newline
						n, err := here.Read(buf)
						if err != nil {
							b.Fatal(err)
						}
						if bytes.HasSuffix(buf[:n], []byte("\n")) {
							break
						}
					}
				}
			})
		}
	}
}
