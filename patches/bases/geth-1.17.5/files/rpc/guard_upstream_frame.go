// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"encoding/json"
	"net/http"
)

// attachFrame does nothing: up to v1.17.5 a codec decodes what its request's body
// gives it.
func (s *requestScope) attachFrame(*jsonCodec) {}

// handOver returns the request as upstream is to serve it: with the body that was read,
// of the length that really came.
func (s *requestScope) handOver(r *http.Request) *http.Request {
	r = r.WithContext(r.Context())
	r.Body, r.ContentLength = &frameBody{frame: &s.frame}, int64(len(s.frame.text))
	if r.ContentLength == 0 {
		r.ContentLength = -1 // 0 would make a health check of a GET
	}
	return r
}

// cutBatches has the codec drop the elements of a batch beyond limit+1 before they
// are built, and call before when a message of so many bytes is there to be taken apart.
// Up to v1.17.5 every message is decoded into its raw form first.
func (c *jsonCodec) cutBatches(limit int, before func(size int) error) {
	decode := c.decode
	c.decode = func(v interface{}) error {
		err := decode(v)
		if raw, ok := v.(*json.RawMessage); ok && err == nil {
			*raw = cutBatch(*raw, limit)
			err = before(len(*raw))
		}
		return err
	}
}
