// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
)

func (s *intakeServer) dialWS(t *testing.T) *websocket.Conn {
	t.Helper()
	s.http.Handler = anyOrigin(s.srv)
	conn, _, err := websocket.DefaultDialer.Dial("ws://"+s.addr, nil)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	return conn
}

func askWS(t *testing.T, conn *websocket.Conn, msg string) (a rpcAnswer) {
	t.Helper()
	require.NoError(t, conn.WriteMessage(websocket.TextMessage, []byte(msg)))
	_, raw, err := conn.ReadMessage()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &a), "%s", raw)
	return a
}

// A message is charged until its call has been answered, whatever its size.
func TestGuardWSMessageIsHeldWhileItsCallRuns(t *testing.T) {
	s := newIntakeServer(t, nil)
	conn := s.dialWS(t)
	msg := intakeCall("hold", 300_000)
	require.NoError(t, conn.WriteMessage(websocket.TextMessage, []byte(msg)))
	require.Eventually(t, func() bool { return s.reached.Load() == 1 }, 5*time.Second, time.Millisecond)
	require.EqualValues(t, len(msg), s.g.body.stats().InUse)
	require.NotNil(t, askWS(t, conn, intakeCall("len", 100)).Result)
	require.EqualValues(t, len(msg), s.g.body.stats().InUse, "the small one is done")
	close(s.gate)
	_, _, err := conn.ReadMessage()
	require.NoError(t, err)
	s.settles(t)
}

// Messages without calls, malformed ones and those that never start hold nothing
// in the end.
func TestGuardWSEverythingIsGivenBack(t *testing.T) {
	s := newIntakeServer(t, func(c *GuardConfig, _ *http.Server) { c.Admission.InFlight = 1 })
	conn := s.dialWS(t)
	for _, msg := range []string{`{"jsonrpc":"2.0","id":1,"result":1}`, `[]`, `null`, `{"jsonrpc":"2.0","method":"in_len","params":["x"]}`, intakeCall("hold", 1000)} {
		require.NoError(t, conn.WriteMessage(websocket.TextMessage, []byte(msg)))
	}
	require.Eventually(t, func() bool { return s.reached.Load() == 1 }, 5*time.Second, time.Millisecond)
	for range 20 { // ahead of the window; some may still start when the first one ends
		require.NoError(t, conn.WriteMessage(websocket.TextMessage, []byte(intakeCall("hold", 10_000))))
	}
	require.Eventually(t, func() bool { return s.g.body.stats().InUse > 200_000 }, 5*time.Second, time.Millisecond)
	require.NoError(t, conn.WriteMessage(websocket.BinaryMessage, make([]byte, 10)[:3]))
	conn.UnderlyingConn().Close()
	close(s.gate)
	s.settles(t)
}

// Large messages are parsed in turn, and small ones do not wait for them. The slot comes
// back when a message turns out to be no JSON; who waits for it goes when the server stops.
func TestGuardWSLargeMessagesAreParsedInTurn(t *testing.T) {
	s := newIntakeServer(t, nil)
	read := func(n int64) {
		t.Helper()
		require.Eventually(t, func() bool { return s.g.body.stats().InUse >= n }, 5*time.Second, time.Millisecond)
	}
	s.g.parsing <- struct{}{}
	conn := s.dialWS(t)
	require.NoError(t, conn.WriteMessage(websocket.TextMessage, []byte(intakeCall("hold", 100_000))))
	read(100_000)
	small := s.dialWS(t)
	for range 100 { // more than enough for the large one, if it did not wait
		require.NotNil(t, askWS(t, small, intakeCall("len", 1000)).Result)
	}
	require.Zero(t, s.reached.Load())
	<-s.g.parsing
	require.Eventually(t, func() bool { return s.reached.Load() == 1 }, 5*time.Second, time.Millisecond)
	close(s.gate)

	broken := s.dialWS(t)
	require.NoError(t, broken.WriteMessage(websocket.TextMessage, []byte(strings.Repeat("[", 100_000))))
	for err := error(nil); err == nil; {
		_, _, err = broken.ReadMessage()
	}
	require.Eventually(t, func() bool { return len(s.g.parsing) == 0 }, 5*time.Second, time.Millisecond)
	other := s.dialWS(t)
	require.NotNil(t, askWS(t, other, "["+strings.Repeat(" ", 100_000)+"]").Error)
	require.NotNil(t, askWS(t, other, intakeCall("len", 100_000)).Result)

	s.g.parsing <- struct{}{}
	require.NoError(t, s.dialWS(t).WriteMessage(websocket.TextMessage, []byte(intakeCall("len", 200_000))))
	read(200_000)
	s.srv.Stop()
	require.Eventually(t, func() bool { return s.g.conns.active.Load() == 0 }, 10*time.Second, time.Millisecond)
	<-s.g.parsing
}

// Over budget: the client reads 1013 and the reason, although it is still sending.
func TestGuardWSOverBudgetReads1013(t *testing.T) {
	s := newIntakeServer(t, nil)
	full := s.g.body.open(budgetKey(1), nil)
	require.NoError(t, full.grow(s.g.body.largeLimit))
	defer full.close()
	for range 10 {
		conn := s.dialWS(t)
		require.NotNil(t, askWS(t, conn, intakeCall("len", 100)).Result, "small ones have their part")
		go conn.WriteMessage(websocket.TextMessage, []byte(intakeCall("len", 4<<20)))
		_, _, err := conn.ReadMessage()
		var ce *websocket.CloseError
		require.ErrorAs(t, err, &ce)
		require.Equal(t, websocket.CloseTryAgainLater, ce.Code)
		require.Contains(t, ce.Text, "request bytes")
		conn.Close()
	}
	require.EqualValues(t, 10, s.g.bodyBooks.full.Load())
	require.Eventually(t, func() bool { return s.g.body.stats().InUse == s.g.body.largeLimit }, 5*time.Second, time.Millisecond)
	require.Eventually(t, func() bool { return s.g.conns.active.Load() == 0 }, 10*time.Second, time.Millisecond)
}

// A client that is refused while it sends can send on for a while, so that it comes to
// read why: no write of its fails before.
func TestGuardWSRefusedConnLingers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	for _, c := range []struct {
		refusal error
		lingers bool
	}{{&budgetError{Wanted: 2, Available: 1, Limit: 2}, true}, {errMessageIdle, false}, {nil, false}} {
		client := dialIdle(t, l.Addr().String())
		server, err := l.Accept()
		require.NoError(t, err)
		lc := &lingerConn{Conn: server, in: &intake{err: c.refusal}}
		require.NoError(t, lc.Close())
		_, err = client.Read(make([]byte, 1))
		require.Equal(t, io.EOF, err, "there is nothing more to read")
		for range 10 {
			if _, err = client.Write(make([]byte, lingerBytes/20)); err != nil {
				break
			}
		}
		require.Equal(t, c.lingers, err == nil, "%v: %v", c.refusal, err)
	}
}

// A message that stalls ends its connection, pings or not; a connection that only
// pings lives and holds nothing.
func TestGuardWSStalledMessageReads1008(t *testing.T) {
	s := newIntakeServer(t, func(c *GuardConfig, _ *http.Server) { c.Body.Idle = 300 * time.Millisecond })
	quiet, stalled := s.dialWS(t), s.dialWS(t)
	w, err := stalled.NextWriter(websocket.TextMessage)
	require.NoError(t, err)
	_, err = w.Write(bytes.Repeat([]byte(" "), 5000)) // some of it leaves
	require.NoError(t, err)
	var pongs atomic.Int32
	quiet.SetPongHandler(func(string) error { pongs.Add(1); return nil })
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 20 {
			time.Sleep(50 * time.Millisecond)
			for _, c := range []*websocket.Conn{quiet, stalled} {
				c.WriteControl(websocket.PingMessage, nil, time.Now().Add(time.Second))
			}
		}
	}()
	_, _, err = stalled.ReadMessage()
	var ce *websocket.CloseError
	require.ErrorAs(t, err, &ce)
	require.Equal(t, websocket.ClosePolicyViolation, ce.Code)
	<-done
	require.NotNil(t, askWS(t, quiet, intakeCall("len", 100)).Result)
	require.NotZero(t, pongs.Load())
	require.EqualValues(t, 1, s.g.bodyBooks.idle.Load())
	s.settles(t)
}

// Trap: pings that come faster than they are read keep the reader from waiting in a read,
// so that a message behind them would stay open for as long as its client likes.
func TestGuardWSPacedPingsAreNoProgress(t *testing.T) {
	s := newIntakeServer(t, func(c *GuardConfig, _ *http.Server) { c.Body.Idle = 300 * time.Millisecond })
	conn := s.dialWS(t)
	w, err := conn.NextWriter(websocket.TextMessage)
	require.NoError(t, err)
	_, err = w.Write(bytes.Repeat([]byte(" "), 5000))
	require.NoError(t, err)
	for range controlBurst + 30*controlRate { // half a minute of them, all there at once
		conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(time.Second))
	}
	begun := time.Now()
	conn.SetReadDeadline(begun.Add(20 * time.Second))
	_, _, err = conn.ReadMessage()
	var ce *websocket.CloseError
	require.ErrorAs(t, err, &ce)
	require.Equal(t, websocket.ClosePolicyViolation, ce.Code)
	require.EqualValues(t, 1, s.g.bodyBooks.idle.Load())
	s.settles(t)
}

// Trap: the limit of a message has a flag of its own.
func TestGuardWSLimit(t *testing.T) {
	s := newIntakeServer(t, func(c *GuardConfig, _ *http.Server) { c.Body.WSLimit = 100_000 })
	conn := s.dialWS(t)
	require.NotNil(t, askWS(t, conn, intakeCall("len", 99_000)).Result)
	conn.WriteMessage(websocket.TextMessage, []byte(intakeCall("len", 101_000)))
	_, _, err := conn.ReadMessage()
	require.True(t, websocket.IsCloseError(err, websocket.CloseMessageTooBig), "%v", err)
}

// Trap: batch elements built before the limit is looked at, WebSocket too.
func TestGuardWSBatchIsCut(t *testing.T) {
	s := newIntakeServer(t, nil)
	conn := s.dialWS(t)
	batch := "[" + strings.Repeat("0,", 1_000_000) + "0]"
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	require.NoError(t, conn.WriteMessage(websocket.TextMessage, []byte(batch)))
	_, raw, err := conn.ReadMessage()
	require.NoError(t, err)
	require.Contains(t, string(raw), "batch too large")
	runtime.ReadMemStats(&after)
	require.Less(t, after.Mallocs-before.Mallocs, uint64(500_000), "each element that is built is one at least")
	require.NotNil(t, askWS(t, conn, intakeCall("len", 100)).Result)
	s.settles(t)
}

func TestGuardWSLongOriginReads403(t *testing.T) {
	s := newIntakeServer(t, nil)
	s.dialWS(t)
	for size, want := range map[int]int{1000: 101, 1025: 403} {
		_, resp, _ := websocket.DefaultDialer.Dial("ws://"+s.addr, http.Header{"Origin": {strings.Repeat("o", size)}})
		require.Equal(t, want, resp.StatusCode)
	}
}

// Several frames go out in one write although the connection is wrapped.
func TestGuardWSWritesAreVectored(t *testing.T) {
	s := newIntakeServer(t, nil)
	conn := s.dialWS(t)
	gc := &guardConn{Conn: &lingerConn{Conn: &trackedConn{Conn: conn.UnderlyingConn()}}}
	require.Equal(t, fmt.Sprintf("%p", conn.UnderlyingConn()), fmt.Sprintf("%p", vectored(gc)))
}
