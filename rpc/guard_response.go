// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

// response stands in front of upstream's function of that name, which encodes
// the result of a call.
func (msg *jsonrpcMessage) response(result any) *jsonrpcMessage {
	return msg.responseUnguarded(result)
}
