// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"bufio"
	"bytes"
	"io"
	"math/rand"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
)

func TestGuardCutBuffers(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for range 2000 {
		var (
			bufs net.Buffers
			want []byte
			n    = 1 + r.Intn(50)
		)
		for range r.Intn(6) {
			buf := make([]byte, 1+r.Intn(40))
			r.Read(buf)
			bufs, want = append(bufs, buf), append(want, buf...)
		}
		var got []byte
		for len(bufs) > 0 {
			var piece net.Buffers
			piece, bufs = cutBuffers(bufs, n)
			joined := bytes.Join(piece, nil)
			require.LessOrEqual(t, len(joined), n)
			require.True(t, len(joined) == n || len(bufs) == 0, "short piece")
			got = append(got, joined...)
		}
		require.Equal(t, want, got)
	}
}

func textBatch(size int) *frameBatch {
	batch := newFrameBatch(lineFraming)
	batch.message(nil, make([]byte, size), "")
	return batch
}

// TestGuardSocketPieces: a long message is written in pieces, each with a time-out
// of its own, so a slow reader is cut only if it takes less than a piece in it.
func TestGuardSocketPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := net.Pipe()
		defer client.Close()
		var pieces []int64
		s := &socketOut{conn: server, timeout: 10 * time.Second, progress: func(n int64) { pieces = append(pieces, n) }}
		sent := make(chan error)
		go func() { sent <- s.send(textBatch(3 * sendPiece)) }()
		for range 3 {
			time.Sleep(9 * time.Second)
			_, err := io.ReadFull(client, make([]byte, sendPiece))
			require.NoError(t, err)
		}
		_, err := io.ReadFull(client, make([]byte, 1))
		require.NoError(t, err)
		require.NoError(t, <-sent)
		require.Equal(t, []int64{sendPiece, sendPiece, sendPiece, 1}, pieces)
		server.Close()
	})
}

// Where the kernel tells how far a write has come, and nothing else times it, pieces are
// large; anywhere else progress shows only between them.
func TestGuardSocketLargePieces(t *testing.T) {
	for _, test := range []struct {
		timeout time.Duration
		tells   func() bool
		want    []int64
	}{
		{0, func() bool { return true }, []int64{sendLarge, sendLarge, 1}},
		{0, func() bool { return false }, slices.Repeat([]int64{sendPiece}, 2*sendLarge/sendPiece)},
		{0, nil, slices.Repeat([]int64{sendPiece}, 2*sendLarge/sendPiece)},
		{time.Minute, func() bool { return true }, slices.Repeat([]int64{sendPiece}, 2*sendLarge/sendPiece)},
	} {
		server, client := net.Pipe()
		go io.Copy(io.Discard, client)
		var pieces []int64
		s := &socketOut{conn: server, timeout: test.timeout, tells: test.tells, progress: func(n int64) { pieces = append(pieces, n) }}
		require.NoError(t, s.send(textBatch(2*sendLarge)))
		require.Equal(t, test.want, pieces[:len(test.want)])
		server.Close()
		client.Close()
	}
}

// TestGuardDripReader: one that takes a byte just before every time-out would be is
// cut all the same.
func TestGuardDripReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := net.Pipe()
		s := &socketOut{conn: server, timeout: 10 * time.Second}
		start := time.Now()
		go func() {
			for {
				time.Sleep(9 * time.Second)
				if _, err := client.Read(make([]byte, 1)); err != nil {
					return
				}
			}
		}()
		require.ErrorIs(t, s.send(textBatch(1000)), os.ErrDeadlineExceeded)
		require.LessOrEqual(t, time.Since(start), 11*time.Second)
		s.abort()
		client.Close()
		time.Sleep(10 * time.Second) // the reader notices
	})
}

// TestGuardSocketAbort: a stuck write ends at once, and so does the read.
func TestGuardSocketAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := net.Pipe()
		defer client.Close()
		s := &socketOut{conn: server, timeout: time.Hour}
		start := time.Now()
		errs := make(chan error, 2)
		go func() { errs <- s.send(textBatch(10)) }()
		go func() { _, err := server.Read(make([]byte, 1)); errs <- err }()
		synctest.Wait()
		s.abort()
		s.abort()
		require.Error(t, <-errs)
		require.Error(t, <-errs)
		require.Zero(t, time.Since(start))
	})
}

// TestGuardStuckClientIsReset: one that reads nothing learns at once that it was
// cut, and the kernel keeps nothing for it; one that was told why reads that first.
func TestGuardStuckClientIsReset(t *testing.T) {
	for _, stuck := range []bool{true, false} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		client, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		server, err := l.Accept()
		require.NoError(t, err)
		l.Close()
		s := &socketOut{conn: server, timeout: time.Hour}
		if stuck {
			s.hurry(100 * time.Millisecond)
			require.Error(t, s.send(textBatch(64<<20)))
		} else {
			require.NoError(t, s.send(textBatch(100)))
		}
		s.abort()
		client.SetReadDeadline(time.Now().Add(20 * time.Second))
		n, err := io.Copy(io.Discard, client)
		if stuck {
			require.ErrorIs(t, err, syscall.ECONNRESET)
		} else {
			require.NoError(t, err)
			require.EqualValues(t, 101, n)
		}
		client.Close()
	}
}

// TestGuardSocketHurry bounds a send in progress, and cannot be undone by the next.
func TestGuardSocketHurry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, client := net.Pipe()
		defer client.Close()
		s := &socketOut{conn: server, timeout: time.Hour}
		start := time.Now()
		errs := make(chan error, 1)
		go func() { errs <- s.send(textBatch(10)) }()
		synctest.Wait()
		s.hurry(time.Second)
		s.hurry(time.Hour)
		require.ErrorIs(t, <-errs, os.ErrDeadlineExceeded)
		require.Equal(t, time.Second, time.Since(start))
		require.ErrorIs(t, s.send(textBatch(10)), os.ErrDeadlineExceeded)
		require.Equal(t, time.Second, time.Since(start))
		server.Close()
	})
}

// wsPair is a WebSocket over a pipe: the server's end writes through an outbox.
type wsPair struct {
	server, client *websocket.Conn
	out            *outbox
	postponed      chan struct{}
	keepalive      *keepalive
}

// outboxPipe is the server's end of the pipe as the WebSocket library sees it.
type outboxPipe struct {
	net.Conn
	out atomic.Pointer[outbox]
}

func (c *outboxPipe) Write(p []byte) (int, error) {
	if out := c.out.Load(); out != nil {
		return out.writeControl(p)
	}
	return c.Conn.Write(p)
}

func (c *outboxPipe) SetWriteDeadline(t time.Time) error { return nil }

type hijacker struct {
	http.ResponseWriter
	conn net.Conn
}

func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.conn, bufio.NewReadWriter(bufio.NewReader(h.conn), bufio.NewWriter(h.conn)), nil
}

func newWSPair(t *testing.T) *wsPair {
	a, b := net.Pipe()
	p := &wsPair{postponed: make(chan struct{}, 1)}
	pipe := &outboxPipe{Conn: a}
	upgraded := make(chan error)
	go func() {
		req, err := http.ReadRequest(bufio.NewReader(a))
		if err == nil {
			p.server, err = new(websocket.Upgrader).Upgrade(hijacker{conn: pipe}, req, nil)
		}
		upgraded <- err
	}()
	var err error
	p.client, _, err = websocket.NewClient(b, mustURL("ws://localhost/"), nil, 1024, 1024)
	require.NoError(t, err)
	require.NoError(t, <-upgraded)
	p.out, err = newOutbox(&socketOut{conn: a, timeout: time.Minute}, wsFraming, testLimits, new(drops))
	require.NoError(t, err)
	pipe.out.Store(p.out)
	p.keepalive = newKeepalive(p.out, p.server, p.postponed, mclock.System{})
	t.Cleanup(func() {
		p.keepalive.stop()
		p.out.fail(errOutboxClosed)
		p.client.Close()
	})
	return p
}

// TestGuardFramesReachAWebSocketClient of the library that geth uses.
func TestGuardFramesReachAWebSocketClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newWSPair(t)
		s := liveSub(p.out, "0x1")
		var texts []string
		for _, size := range []int{0, 1, 20, 30, 1000, 65000, 70000, 3 * batchBytes} {
			texts = append(texts, string(bytes.Repeat([]byte{'a'}, size)))
		}
		require.NoError(t, s.notify(textEvent(1, texts...), true))
		for _, text := range texts {
			op, msg, err := p.client.ReadMessage()
			require.NoError(t, err)
			require.Equal(t, websocket.TextMessage, op)
			require.Equal(t, notification("0x1", text), string(msg))
		}
	})
}

// TestGuardCloseFrameTellsWhy: the client of a dropped subscription reads 1013.
func TestGuardCloseFrameTellsWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newWSPair(t)
		s := liveSub(p.out, "0x1")
		for s.notify(textEvent(0, "a"), true) == nil {
		}
		var err error
		for err == nil {
			_, _, err = p.client.ReadMessage()
		}
		require.True(t, websocket.IsCloseError(err, websocket.CloseTryAgainLater), "%v", err)
		require.Contains(t, err.Error(), "slow consumer: eth logs (events)")
		_, _, err = p.server.ReadMessage()
		require.Error(t, err)
	})
}

func TestGuardCloseReasonFits(t *testing.T) {
	frame := closeFrame(websocket.CloseTryAgainLater, string(make([]byte, 1000)))
	require.Len(t, frame, 2+125)
	require.EqualValues(t, 125, frame[1])
}

// TestGuardPongDoesNotWaitForTheWriter: the reader that answers pings goes on
// reading while a write is stuck.
func TestGuardPongDoesNotWaitForTheWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newWSPair(t)
		s := liveSub(p.out, "0x1")
		require.NoError(t, s.notify(textEvent(0, "stuck"), true)) // the client does not read
		start := time.Now()
		go func() {
			for range 1000 {
				p.client.WriteControl(websocket.PingMessage, nil, time.Time{})
			}
			p.client.WriteMessage(websocket.TextMessage, []byte("call"))
		}()
		_, msg, err := p.server.ReadMessage()
		require.NoError(t, err)
		require.Equal(t, "call", string(msg))
		require.Zero(t, time.Since(start))
	})
}

// TestGuardKeepalive: an idle connection is pinged and lives on; upstream's own
// ping is postponed for good; a client that answers nothing is cut.
func TestGuardKeepalive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newWSPair(t)
		var (
			pings atomic.Int32
			dumb  atomic.Bool
		)
		p.client.SetPingHandler(func(string) error {
			pings.Add(1)
			if dumb.Load() {
				return nil
			}
			return p.client.WriteControl(websocket.PongMessage, nil, time.Time{})
		})
		go p.client.ReadMessage()
		read := make(chan error, 1)
		go func() { _, _, err := p.server.ReadMessage(); read <- err }()
		for range 20 {
			time.Sleep(wsPingInterval / 2)
			synctest.Wait()
			select {
			case <-p.postponed:
			default:
				t.Fatal("upstream's ping is not postponed")
			}
		}
		require.InDelta(t, 10, pings.Load(), 1)
		require.Empty(t, read)

		dumb.Store(true)
		time.Sleep(wsPingInterval + wsPongTimeout + time.Second)
		synctest.Wait()
		require.Error(t, <-read)
	})
}

// TestGuardKeepaliveOfBusyConnection: while something waits to be written nobody
// expects a pong, which would come behind it.
func TestGuardKeepaliveOfBusyConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newWSPair(t)
		p.out.conn.(*socketOut).timeout = time.Hour
		read := make(chan error, 1)
		go func() { _, _, err := p.server.ReadMessage(); read <- err }()
		s := liveSub(p.out, "0x1")
		require.NoError(t, s.notify(textEvent(0, "slow"), true))
		time.Sleep(10 * wsPingInterval)
		synctest.Wait()
		require.Empty(t, read)
	})
}

func mustURL(s string) *url.URL {
	u, err := url.Parse(s)
	if err != nil {
		panic(err)
	}
	return u
}
