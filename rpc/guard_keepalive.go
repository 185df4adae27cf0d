// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
	"github.com/gorilla/websocket"
)

// writeControl takes the control frames that the WebSocket library writes of its
// own accord: pongs, and the close frame. It stands where the library believes to
// write to the network, so the library never waits for the client: not the reader
// that answers a ping, not the one that closes.
func (o *outbox) writeControl(p []byte) (int, error) {
	if len(p) < 2 {
		return 0, errors.New("control frame too short")
	}
	frame := append([]byte(nil), p...)
	switch int(p[0] & 0xf) {
	case websocket.PongMessage:
		o.sendControl(controlPong, frame)
	case websocket.PingMessage:
		o.sendControl(controlPing, frame)
	case websocket.CloseMessage:
		// Whoever sends this closes the connection next, so it is waited for.
		o.sayGoodbye(frame, closeGrace)
		<-o.done
	default:
		return 0, errors.New("data frame written past the outbox")
	}
	select {
	case <-o.done:
		if p[0]&0xf != websocket.CloseMessage {
			return 0, net.ErrClosed
		}
	default:
	}
	return len(p), nil
}

// closeGrace is how long closing a connection in good order may take. A server that
// stops closes its connections one after another.
const closeGrace = 50 * time.Millisecond

// keepalive pings an idle WebSocket, in place of upstream's ping loop. That one
// expects the pong 30 s after it has queued the ping, which is wrong for a client
// that is slow to take the megabytes in front of it; and its pong handler waits for
// the loop, which makes the reader wait for the writer. Here a ping is sent only
// when nothing else waits (what waits is watched by whoever writes it), and a pong
// only clears the read deadline.
type keepalive struct {
	out   *outbox
	conn  *websocket.Conn
	reset chan<- struct{} // postpones upstream's next ping
	clock mclock.Clock

	mu    sync.Mutex
	timer mclock.Timer // nil once stopped
	sent  uint64       // what had been sent at the last tick
	idle  int          // ticks since something was sent
}

// keepaliveTick is short enough that upstream's loop, which is postponed at every
// tick, never fires.
const keepaliveTick = wsPingInterval / 2

func newKeepalive(out *outbox, conn *websocket.Conn, reset chan<- struct{}, clock mclock.Clock) *keepalive {
	k := &keepalive{out: out, conn: conn, reset: reset, clock: clock}
	conn.SetPongHandler(func(string) error {
		return conn.SetReadDeadline(time.Time{})
	})
	k.mu.Lock()
	defer k.mu.Unlock()
	k.timer = clock.AfterFunc(keepaliveTick, k.tick)
	return k
}

func (k *keepalive) tick() {
	select {
	case k.reset <- struct{}{}:
	default:
	}
	sent, busy := k.out.progress()

	k.mu.Lock()
	if k.timer == nil {
		k.mu.Unlock()
		return
	}
	if busy || sent != k.sent {
		k.sent, k.idle = sent, 0
	} else {
		k.idle++
	}
	ping := k.idle >= int(wsPingInterval/keepaliveTick)
	if ping {
		k.sent, k.idle = sent+1, 0 // the ping itself is no sign of life
	}
	k.timer = k.clock.AfterFunc(keepaliveTick, k.tick)
	k.mu.Unlock()

	if ping {
		k.conn.SetReadDeadline(time.Now().Add(wsPongTimeout))
		k.out.sendControl(controlPing, []byte{1<<7 | websocket.PingMessage, 0})
	}
}

func (k *keepalive) stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.timer != nil {
		k.timer.Stop()
		k.timer = nil
	}
}
