// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

// Notify sends data to the client as the payload of a notification for the
// subscription with the given ID. An error means that the subscription is over.
func (n *Notifier) Notify(id ID, data any) error {
	return n.notifyUnguarded(id, data)
}

// handleSubscriptionResult stands in front of upstream's function of that name,
// on the side of the client.
func (h *handler) handleSubscriptionResult(msg *jsonrpcMessage) {
	h.handleSubscriptionResultUnguarded(msg)
}
