// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"math"
	"net/http"
)

// From v1.17.6 on a codec reads a message as a whole, if its transport knows where that
// ends. So a body that was read goes to the parser as it is.

// attachFrame has the codec of an HTTP request take the body that was read.
func (s *requestScope) attachFrame(c *jsonCodec) { c.readFrame = s.frame.take }

// handOver returns the request as upstream is to serve it.
func (s *requestScope) handOver(r *http.Request) *http.Request { return r }

// cutBatches has the codec drop the elements of a batch beyond limit+1 while they come in,
// and call before when a message of so many bytes is there to be parsed.
//
// It puts messages together from buffers that are used again. Upstream's way, a slice that
// grows by a quarter whenever it is full, moves a message of 30 MiB through 150 MiB of
// fresh memory, and a 100 bytes one takes 512.
func (c *websocketCodec) cutBatches(limit int, before func(size int) error) {
	var (
		conn = c.conn
		cfg  = bodyConfig{limit: math.MaxInt64, maxBatch: limit} // the connection has a limit of its own
		b    bodyReader
	)
	c.readFrame = func() ([]byte, error) {
		_, src, err := conn.NextReader()
		if err != nil {
			return nil, err
		}
		b = bodyReader{cfg: cfg, src: src, declared: -1} // charged below the library
		kept, err := b.readAll()
		if err != nil {
			kept.Close()
			return nil, err
		}
		text := kept.join()
		return text, before(len(text))
	}
}
