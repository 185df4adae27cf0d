// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import "net/http"

// From v1.17.6 on a codec reads a message as a whole, if its transport knows where that
// ends. So a body that was read goes to the parser as it is.

// attachFrame has the codec of an HTTP request take the body that was read.
func (s *requestScope) attachFrame(c *jsonCodec) { c.readFrame = s.frame.take }

// handOver returns the request as upstream is to serve it.
func (s *requestScope) handOver(r *http.Request) *http.Request { return r }

// cutBatches has the codec drop the elements of a batch beyond limit+1 before they
// are built.
func (c *jsonCodec) cutBatches(limit int) {
	read := c.readFrame
	if read == nil {
		return
	}
	c.readFrame = func() ([]byte, error) {
		frame, err := read()
		return cutBatch(frame, limit), err
	}
}
