// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// flushedOutbox is an outbox that a flusher with one worker serves.
func flushedOutbox(t *testing.T, f *flusher, conn outboxConn) *outbox {
	o := newTestOutbox(t, conn, wsFraming, testLimits)
	o.flusher = f
	return o
}

func newTestFlusher(t *testing.T, workers int) *flusher {
	f, err := newFlusher(workers)
	require.NoError(t, err)
	t.Cleanup(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		require.Zero(t, f.ready.len())
		require.Zero(t, f.workers, "a worker is left")
	})
	return f
}

func TestGuardFlusherRefusesNonsense(t *testing.T) {
	_, err := newFlusher(0)
	require.Error(t, err)
}

// TestGuardFlusherWaitsForNoClient: the only worker serves the next connection while the
// client of the one before takes nothing, and that one gets all of it later.
func TestGuardFlusherWaitsForNoClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTestFlusher(t, 1)
		stuck, free := newFakeConn(), newFakeConn()
		free.letAll()
		a, b := flushedOutbox(t, f, stuck), flushedOutbox(t, f, free)
		sa, sb := liveSub(a, "0xa"), liveSub(b, "0xb")
		for i := range 5 {
			require.NoError(t, sa.notify(textEvent(0, fmt.Sprint(i)), true))
			require.NoError(t, sb.notify(textEvent(0, fmt.Sprint(i)), true))
			synctest.Wait()
			require.Len(t, free.messages(wsFraming), i+1)
		}
		stuck.letAll()
		synctest.Wait()
		require.Len(t, stuck.messages(wsFraming), 5)
		for i, msg := range stuck.messages(wsFraming) {
			require.Equal(t, notification("0xa", fmt.Sprint(i)), msg)
		}
		require.False(t, a.writing)
		require.False(t, b.writing)
	})
}

// slowTry holds the worker that serves it.
type slowTry struct {
	*fakeConn
	begun, end chan struct{}
}

func (c *slowTry) trySend(b *frameBatch) (bool, error) {
	close(c.begun)
	<-c.end
	return c.fakeConn.trySend(b)
}

// TestGuardFlusherGathersABurst: what comes while a connection stands in the queue
// leaves in one send.
func TestGuardFlusherGathersABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTestFlusher(t, 1)
		conn := newFakeConn()
		conn.letAll()
		slow := holdWorker(t, f)
		s := liveSub(flushedOutbox(t, f, conn), "0x2")
		for range testLimits.events {
			require.NoError(t, s.notify(textEvent(0, "a"), true))
		}
		close(slow.end)
		synctest.Wait()
		require.Len(t, conn.messages(wsFraming), testLimits.events)
		require.Equal(t, 1, conn.sends)
	})
}

// holdWorker keeps a worker of f busy until end is closed.
func holdWorker(t *testing.T, f *flusher) *slowTry {
	slow := &slowTry{newFakeConn(), make(chan struct{}), make(chan struct{})}
	slow.letAll()
	liveSub(flushedOutbox(t, f, slow), "0x1").notify(textEvent(0, "holds the worker"), true)
	<-slow.begun
	return slow
}

// TestGuardFlusherTakesTurns: a connection with much to send queues up again behind
// the others after each batch.
func TestGuardFlusherTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTestFlusher(t, 1)
		slow := holdWorker(t, f)
		var order []string
		long, short := &orderedConn{newFakeConn(), "long", &order}, &orderedConn{newFakeConn(), "short", &order}
		texts := make([]string, 1000)
		for i := range texts {
			texts[i] = strings.Repeat("x", 100)
		}
		require.NoError(t, liveSub(flushedOutbox(t, f, long), "0x2").notify(textEvent(0, texts...), true))
		require.NoError(t, liveSub(flushedOutbox(t, f, short), "0x3").notify(textEvent(0, "a"), true))
		close(slow.end)
		synctest.Wait()
		require.Equal(t, []string{"long", "short", "long"}, order[:3])
		require.Len(t, long.messages(wsFraming), 1000)
	})
}

// orderedConn notes when it was written to, and takes everything.
type orderedConn struct {
	*fakeConn
	name  string
	order *[]string
}

func (c *orderedConn) trySend(b *frameBatch) (bool, error) {
	*c.order = append(*c.order, c.name) // by the only worker
	c.letAll()
	return c.fakeConn.trySend(b)
}

// TestGuardFlusherSaysGoodbye: a connection that is given up while it stands in the
// queue gets its last frame, and nothing else.
func TestGuardFlusherSaysGoodbye(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTestFlusher(t, 1)
		slow := holdWorker(t, f)
		conn := newFakeConn()
		conn.letAll()
		o := flushedOutbox(t, f, conn)
		s := liveSub(o, "0x2")
		require.NoError(t, s.notify(textEvent(0, "a"), true))
		o.sayGoodbye(closeFrame(1013, "why"), time.Second)
		close(slow.end)
		<-o.done
		synctest.Wait()
		require.Equal(t, []string{"8:\x03\xf5why"}, conn.messages(wsFraming))
		requireEmpty(t, o)
	})
}

// TestGuardFlusherFailedWrite: an error ends the connection as any failed write does.
func TestGuardFlusherFailedWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTestFlusher(t, 1)
		conn := newFakeConn()
		conn.fail(io.ErrClosedPipe)
		o := flushedOutbox(t, f, conn)
		require.NoError(t, liveSub(o, "0x1").notify(textEvent(0, "a"), true))
		<-o.done
		synctest.Wait()
		require.Equal(t, []dropReport{{Reason: dropWrite}}, dropsOf(o))
		requireEmpty(t, o)
	})
}

// TestGuardFlusherEndsMidFrame: where the kernel's buffer ends in the middle of a frame
// another goroutine goes on, and the client reads every frame whole and in order.
func TestGuardFlusherEndsMidFrame(t *testing.T) {
	client, server, err := os.Pipe() // takes a part of a write; TCP most often all or none
	require.NoError(t, err)
	defer client.Close()

	f := newTestFlusher(t, 1)
	out := newSocketOut(server, time.Minute)
	require.NotNil(t, out.raw)
	var moved int64
	out.progress = func(n int64) { moved += n } // one writer at a time
	limits := subLimits{events: 1 << 20, bytes: 1 << 30, connBytes: 1 << 30}
	o := newTestOutbox(t, out, lineFraming, limits)
	o.flusher = f
	s := liveSub(o, "0x1")
	const n = 2000
	text := strings.Repeat("x", 3000)
	for i := range n { // 6 MB, of which the kernel takes a part
		require.NoError(t, s.notify(textEvent(0, fmt.Sprint(i, text)), true))
	}
	var want strings.Builder
	for i := range n {
		want.WriteString(notification("0x1", fmt.Sprint(i, text)) + "\n")
	}
	got := make([]byte, want.Len())
	client.SetReadDeadline(time.Now().Add(20 * time.Second))
	_, err = io.ReadFull(client, got)
	require.NoError(t, err)
	require.True(t, want.String() == string(got), "bytes lost, doubled or out of order")
	eventually(t, "writer at rest", func() bool { _, busy := o.progress(); return !busy })
	require.EqualValues(t, want.Len(), moved)
	eventually(t, "worker at rest", func() bool { f.mu.Lock(); defer f.mu.Unlock(); return f.workers == 0 })
}

// TestGuardTrySendOfClosed tells an error from a full buffer.
func TestGuardTrySendOfClosed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	out := newSocketOut(conn.(deadlineWriter), 0)
	b := newFrameBatch(lineFraming)
	b.message([]byte("a"), nil, "")
	done, err := out.trySend(b)
	require.True(t, done)
	require.NoError(t, err)
	conn.Close()
	done, err = out.trySend(b)
	require.False(t, done)
	require.Error(t, err)
}
