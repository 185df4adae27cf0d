// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

// cutBatches has the codec drop the elements of a batch beyond limit+1 before they
// are built. From v1.17.6 on a WebSocket codec reads a message as a whole.
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
