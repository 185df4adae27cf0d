// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import "net/http"

// No call takes a short way in releases up to v1.17.3: their handlers trace nothing, or
// differently, and encode errors when they are written.

type (
	directCall struct{ request *http.Request }
	answerOnce struct{}
)

func (d *directCall) peerInfo() PeerInfo { return PeerInfo{} }

func (g *Guard) serveDirectly(*Server, *requestScope, *http.Request) bool { return false }

func (h *handler) handleNonBatchCall(cp *callProc, msg *jsonrpcMessage) {
	h.handleNonBatchCallUnguarded(cp, msg)
}

func (h *handler) runCallback(cp *callProc, msg *jsonrpcMessage) *jsonrpcMessage {
	return h.handleCallUnguarded(cp, msg)
}
