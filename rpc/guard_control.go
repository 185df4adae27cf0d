// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"github.com/gorilla/websocket"
	"golang.org/x/time/rate"
)

const (
	controlRate  = 20 // control frames a second that a client may send, on and on
	controlBurst = 50 // and at once
)

// paceControl slows a client down that sends control frames faster than anybody needs
// to: each costs a pass through the reader and a ping costs a write besides, and none is
// charged to anything. The connection is read more slowly, so that the client's own
// sending blocks; it is not ended, since no rule of the protocol was broken. A client
// that pings every second never notices.
//
// What it has sent already is read as slowly, so that its leaving would show behind all of
// that: the socket is looked at after each pause, as where nothing is read at all.
//
// In the middle of a message the pause counts as time in which no payload came
// (intake.pause): or 21 pings a second would keep a message open for good.
func paceControl(conn *websocket.Conn, guarded *guardConn) {
	limiter := rate.NewLimiter(controlRate, controlBurst)
	pace := func(handle func(string) error) func(string) error {
		return func(data string) error {
			if d := limiter.Reserve().Delay(); d > 0 {
				if err := guarded.pause(d); err != nil {
					return err
				}
				if hungUp(conn.UnderlyingConn()) {
					return errHungUp
				}
			}
			return handle(data)
		}
	}
	conn.SetPingHandler(pace(conn.PingHandler()))
	conn.SetPongHandler(pace(conn.PongHandler()))
}
