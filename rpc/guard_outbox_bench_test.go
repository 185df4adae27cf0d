// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
)

// benchLogs are the logs of one block.
func benchLogs(n int) []*types.Log {
	logs := make([]*types.Log, n)
	for i := range logs {
		logs[i] = &types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}, {3}, {4}}, Data: make([]byte, 32), BlockNumber: 1, Index: uint(i)}
	}
	return logs
}

// benchConn is a TCP connection whose other end reads and counts.
func benchConn(b *testing.B, taken *atomic.Int64) net.Conn {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		b.Fatal(err)
	}
	go func() {
		buf := make([]byte, 256<<10)
		for {
			n, err := client.Read(buf)
			taken.Add(int64(n))
			if err != nil {
				return
			}
		}
	}()
	b.Cleanup(func() { server.Close(); client.Close() })
	return server
}

// BenchmarkGuardFanOut delivers the logs of one block to many subscribers over TCP.
// Compare ns/notification of upstream's way, one encoding and one write each, with
// that of the outbox.
func BenchmarkGuardFanOut(b *testing.B) {
	const logsPerBlock = 100
	logs := benchLogs(logsPerBlock)
	for _, subs := range []int{1, 100} {
		b.Run(fmt.Sprintf("upstream/%d", subs), func(b *testing.B) {
			var taken atomic.Int64
			var codecs []ServerCodec
			for range subs {
				codecs = append(codecs, NewCodec(benchConn(b, &taken)))
			}
			b.ReportAllocs()
			for b.Loop() {
				for _, codec := range codecs {
					for _, log := range logs {
						params, _ := json.Marshal(subscriptionResultEnc{ID: "0xcafe", Result: &log})
						msg := &jsonrpcMessage{Version: vsn, Method: "eth_subscription", Params: params}
						if err := codec.writeJSON(context.Background(), msg, false); err != nil {
							b.Fatal(err)
						}
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*subs*logsPerBlock), "ns/notification")
		})
		b.Run(fmt.Sprintf("outbox/%d", subs), func(b *testing.B) {
			var taken atomic.Int64
			limits := subLimits{events: 1 << 20, bytes: 1 << 40, connBytes: 1 << 40}
			var notifiers []*clientNotifier
			for range subs {
				o := newTestOutbox(b, &socketOut{conn: benchConn(b, &taken), timeout: stallTimeout}, lineFraming, limits)
				notifiers = append(notifiers, liveSub(o, "0xcafe"))
			}
			b.ReportAllocs()
			for b.Loop() {
				results := make([]json.RawMessage, len(logs))
				for i, log := range logs {
					results[i], _ = EncodeResult(log)
				}
				ev := NewEvent(1, results)
				for _, s := range notifiers {
					s.notify(ev, true)
				}
				for _, s := range notifiers {
					s.out.writeReply(textReply(1), nil) // comes after the event
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*subs*logsPerBlock), "ns/notification")
		})
	}
}

// BenchmarkGuardNotify is the cost of handing over one event: what the event loop
// pays for a subscriber.
func BenchmarkGuardNotify(b *testing.B) {
	limits := subLimits{events: 1 << 30, bytes: 1 << 50, connBytes: 1 << 50}
	o := newTestOutbox(b, discardConn{}, wsFraming, limits)
	s := liveSub(o, "0xcafe")
	ev := textEvent(1, "0x0000000000000000000000000000000000000000000000000000000000000000")
	b.ReportAllocs()
	for b.Loop() {
		s.notify(ev, true)
	}
}

// discardConn is a client that takes everything at once.
type discardConn struct{ outboxConn }

func (discardConn) send(b *frameBatch) error {
	for _, buf := range b.buffers() {
		io.Discard.Write(buf)
	}
	return nil
}

func (discardConn) abort() {}
