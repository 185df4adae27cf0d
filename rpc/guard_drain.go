// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
)

// drainTime is how long a refused sender may go on before its connection ends.
const drainTime = 5 * time.Second

// errBodyBroken is what ends the drain of a body that cannot be read to its end.
var errBodyBroken = errors.New("request body is broken")

var drainPool = sync.Pool{New: func() any { return new([8 << 10]byte) }}

// drainBody reads and drops what a refused client is still sending, once the
// answer is out. Closing at once would turn the answer into a reset: the kernel
// answers bytes that nobody will read with RST, and the client's own kernel then
// throws away the answer it has not read yet. Go's server drains by itself, but
// 256 KiB at most, and before the answer instead of after it.
//
// It ends at the end of the body, after limit bytes or after drainTime, through
// cut, which sets the read deadline; nothing is held but one small buffer. An error
// means that the end was not reached, so the connection is not fit for another request:
// errBodySlow if a bound was met, errBodyBroken if the source failed.
func drainBody(src io.Reader, limit int64, clock mclock.Clock, cut func(time.Time) error) error {
	w := watchBody(context.Background(), clock, bodyConfig{absolute: drainTime}, cut)
	defer w.stop()
	buf := drainPool.Get().(*[8 << 10]byte)
	defer drainPool.Put(buf)
	for {
		n, err := src.Read(buf[:])
		limit -= int64(n)
		switch {
		case err == nil && limit >= 0:
			continue
		case err == nil:
			w.fail(errBodySlow)
		}
		if w.stop() != nil {
			return errBodySlow
		}
		if err == io.EOF {
			return nil
		}
		cut(longPast) // the rest must not be taken for a request
		return errBodyBroken
	}
}

// drainConn is drainBody below the body, for one whose reader can not go on: that of
// chunks repeats its first error for ever, and a body that lost its bytes to another one
// was cut short by one. The connection is the guard's then, and it closes it; where it
// cannot have it, the server does.
func drainConn(rc *http.ResponseController, limit int64, clock mclock.Clock) {
	conn, _, err := rc.Hijack() // which lifts the deadlines
	if err != nil {
		return
	}
	defer conn.Close()
	if c, ok := conn.(interface{ CloseWrite() error }); ok {
		c.CloseWrite() // who waits for the server to close need not wait for the drain
	}
	drainBody(conn, limit, clock, conn.SetReadDeadline)
}
