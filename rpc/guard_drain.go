// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
)

// drainTime is how long a refused sender may go on before its connection ends.
const drainTime = 5 * time.Second

var drainPool = sync.Pool{New: func() any { return new([8 << 10]byte) }}

// drainBody reads and drops what a refused client is still sending, once the
// answer is out. Closing at once would turn the answer into a reset: the kernel
// answers bytes that nobody will read with RST, and the client's own kernel then
// throws away the answer it has not read yet. Go's server drains by itself, but
// 256 KiB at most, and before the answer instead of after it.
//
// It ends at the end of the body, after limit bytes or after drainTime, through
// cut, which sets the read deadline; nothing is held but one small buffer. It
// reports whether the end was reached, that is, whether the connection is fit for
// another request.
func drainBody(src io.Reader, limit int64, clock mclock.Clock, cut func(time.Time) error) bool {
	w := watchBody(context.Background(), clock, bodyConfig{absolute: drainTime}, cut)
	defer w.stop()
	buf := drainPool.Get().(*[8 << 10]byte)
	defer drainPool.Put(buf)
	for {
		n, err := w.readFrom(src, buf[:])
		if err == io.EOF {
			return true
		}
		if limit -= int64(n); err != nil || limit < 0 {
			// The rest must not be taken for a request.
			w.fail(errBodySlow)
			return false
		}
	}
}
