// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

// handleCall stands in front of upstream's function of that name. It is reached
// by single calls, batch entries, notifications, subscribe and unsubscribe.
func (h *handler) handleCall(cp *callProc, msg *jsonrpcMessage) *jsonrpcMessage {
	return h.handleCallUnguarded(cp, msg)
}

// startCallProc stands in front of upstream's function of that name: fn serves
// one message, a batch being one.
func (h *handler) startCallProc(fn func(*callProc)) {
	h.startCallProcUnguarded(fn)
}
