// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import "encoding/json"

// cutBatches has the codec drop the elements of a batch beyond limit+1 before they
// are built. Up to v1.17.5 every message is decoded into its raw form first.
func (c *jsonCodec) cutBatches(limit int) {
	decode := c.decode
	c.decode = func(v interface{}) error {
		err := decode(v)
		if raw, ok := v.(*json.RawMessage); ok {
			*raw = cutBatch(*raw, limit)
		}
		return err
	}
}
