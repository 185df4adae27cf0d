// SPDX-License-Identifier: LGPL-3.0-or-later

package rig

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/gorilla/websocket"
)

// WS is one WebSocket connection.
type WS struct {
	*websocket.Conn
	Net *MeterConn
}

// DialWS connects and upgrades. Headers are pairs of name and value.
func DialWS(ctx context.Context, addr string, d Dialer, header ...string) (*WS, error) {
	ws := new(WS)
	dialer := websocket.Dialer{
		NetDialContext: func(ctx context.Context, _, a string) (net.Conn, error) {
			c, err := d.Dial(ctx, a)
			if err != nil {
				return nil, err
			}
			ws.Net = &MeterConn{Conn: c}
			return ws.Net, nil
		},
		HandshakeTimeout: 20 * time.Second,
		ReadBufferSize:   4096,
		WriteBufferSize:  4096,
	}
	h := make(http.Header)
	if d.Forward != "" {
		h.Set("X-Forwarded-For", d.Forward)
	}
	for i := 0; i+1 < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	c, resp, err := dialer.DialContext(ctx, "ws://"+addr, h)
	if err != nil {
		if resp != nil {
			return nil, &StatusError{resp.StatusCode, err}
		}
		return nil, err
	}
	ws.Conn = c
	return ws, nil
}

// StatusError is a refused upgrade.
type StatusError struct {
	Status int
	Err    error
}

func (e *StatusError) Error() string { return fmt.Sprintf("status %d: %v", e.Status, e.Err) }

// Abort leaves at once, by a reset.
func (w *WS) Abort() { w.Net.Close() }

// Send writes one message within 20 s.
func (w *WS) Send(msg []byte) error {
	w.SetWriteDeadline(time.Now().Add(20 * time.Second))
	return w.WriteMessage(websocket.TextMessage, msg)
}

// Next reads one message; replies of a batch come as several.
func (w *WS) Next(limit time.Duration) ([]*Reply, error) {
	w.SetReadDeadline(time.Now().Add(limit))
	_, msg, err := w.ReadMessage()
	if err != nil {
		return nil, err
	}
	return DecodeReplies(msg)
}

// DecodeReplies takes a reply or an array of them.
func DecodeReplies(msg []byte) ([]*Reply, error) {
	for _, c := range msg {
		switch c {
		case ' ', '\t', '\r', '\n':
			continue
		case '[':
			var rs []*Reply
			err := json.Unmarshal(msg, &rs)
			return rs, err
		}
		break
	}
	r := new(Reply)
	if err := json.Unmarshal(msg, r); err != nil {
		return nil, err
	}
	return []*Reply{r}, nil
}

// Call sends a call and reads until its reply comes; what comes before is lost.
func (w *WS) Call(limit time.Duration, method string, params ...any) (*Reply, error) {
	const id = 900001
	if err := w.Send(Call(id, method, params...)); err != nil {
		return nil, err
	}
	for end := time.Now().Add(limit); ; {
		rs, err := w.Next(time.Until(end))
		if err != nil {
			return nil, err
		}
		for _, r := range rs {
			if string(r.ID) == "900001" {
				return r, nil
			}
		}
	}
}

// CloseCode is the code of the close frame that err tells of, 0 if none did.
func CloseCode(err error) int {
	var ce *websocket.CloseError
	if errors.As(err, &ce) {
		return ce.Code
	}
	return 0
}

// Frame encodes one client frame, masked with zeros. Opcode 0 continues, 1 is
// text, 9 a ping.
func Frame(fin bool, opcode byte, payload []byte) []byte {
	return append(FrameHead(fin, opcode, len(payload)), payload...)
}

// FrameHead encodes the header of a frame of n bytes.
func FrameHead(fin bool, opcode byte, n int) []byte {
	b := []byte{opcode}
	if fin {
		b[0] |= 0x80
	}
	switch {
	case n < 126:
		b = append(b, 0x80|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), uint64(n))
	}
	return append(b, 0, 0, 0, 0)
}
