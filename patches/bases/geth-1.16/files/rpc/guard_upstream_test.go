// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import "encoding/json"

// What tests use of later releases.

func appendBatch(buf []byte, msgs []*jsonrpcMessage) []byte {
	if len(msgs) == 0 {
		return append(buf, "[]"...)
	}
	enc, err := json.Marshal(msgs)
	if err != nil {
		panic(err)
	}
	return append(buf, enc...)
}
