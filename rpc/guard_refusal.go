// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"encoding/json"
)

// refusalError is the error of every refused call of a node, made once: under a flood
// refusing is all that the node does.
type refusalError struct {
	encoded json.RawMessage
	decoded *jsonError
}

// newRefusedCall returns the scope that all refused calls share.
func newRefusedCall(code int) (*callScope, error) {
	e := &jsonError{Code: code, Message: refusalMessage}
	encoded, err := json.Marshal(e)
	if err != nil {
		return nil, err
	}
	return &callScope{refusal: &refusalError{encoded, e}}, nil
}

// refusedReply is the reply to a refused call. Its error is filled in when the reply is
// written and not before: upstream decodes the error of each entry of a batch twice, for
// traces and for a warning, which costs more than all the rest of a refusal.
func (a *guardAdmission) refusedReply(msg *jsonrpcMessage) *jsonrpcMessage {
	return &jsonrpcMessage{Version: vsn, ID: msg.ID, guard: a.refused}
}

// fillRefusals completes replies before they are encoded.
func fillRefusals(msgs ...*jsonrpcMessage) {
	for _, msg := range msgs {
		if s := msg.guard; s != nil && s.refusal != nil {
			msg.setRefusal(s.refusal)
		}
	}
}
