// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"net/http"
)

// No call takes a short way in bsc, as in the release it stands on: its handlers trace nothing,
// and encode errors when they are written.

type (
	directCall struct{ request *http.Request }
	answerOnce struct{}
)

func (d *directCall) peerInfo() PeerInfo { return PeerInfo{} }

func (g *Guard) serveDirectly(*Server, *requestScope, *http.Request) bool { return false }

func (h *handler) handleNonBatchCall(cp *callProc, reqCtx context.Context, msg *jsonrpcMessage) {
	h.handleNonBatchCallUnguarded(cp, reqCtx, msg)
}

func (h *handler) runCallback(cp *callProc, msg *jsonrpcMessage) *jsonrpcMessage {
	return h.handleCallUnguarded(cp, msg)
}
