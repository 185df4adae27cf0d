// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"encoding/json"
)

// This file ties subscriptions to the queues that deliver them: it holds what
// stands in front of upstream's functions on the way of a subscription through the
// handler. All of it is for connections that have an outbox; without one (no guard,
// an in-process connection, the client's side) everything is upstream's.

// queue returns the queue that delivers n's notifications, and makes it when it is
// first asked for. It is nil where upstream delivers.
func (n *Notifier) queue() *clientNotifier {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.guard == nil {
		if c, ok := n.h.conn.(*guardCodec); ok && c.out != nil {
			n.guard = c.out.newNotifier(n.namespace)
		}
	}
	return n.guard
}

// Notify sends data to the client as the payload of a notification for the
// subscription with the given ID. An error means that the subscription is over.
//
// It does not wait for the client, and says nothing about how many notifications
// belong together; see NotifyEvent.
func (n *Notifier) Notify(id ID, data any) error {
	s := n.queue()
	if s == nil {
		return n.notifyUnguarded(id, data)
	}
	n.prepare(s, id)
	result, err := EncodeResult(data)
	if err != nil {
		return err
	}
	return s.notify(NewEvent(0, []json.RawMessage{result}), false)
}

// NotifyEvent sends a whole event: one notification for each of its results, in
// order. For the bound on events that wait it counts as one. Otherwise it is as
// Notify. It must only be called if Bounded reports true.
func (n *Notifier) NotifyEvent(id ID, ev *Event) error {
	s := n.queue()
	n.prepare(s, id)
	return s.notify(ev, true)
}

// Bounded reports whether notifications are delivered through a bounded queue.
// Without one Notify waits for the client.
func (n *Notifier) Bounded() bool { return n.queue() != nil }

// Shareable reports whether NotifyEvent never waits, so that one goroutine can serve
// many subscriptions. It does wait in a dry run.
func (n *Notifier) Shareable() bool {
	s := n.queue()
	return s != nil && !s.out.limits.dryRun
}

// OnEnd has f called when the subscription has ended: unsubscribed, dropped, or with
// its connection. If it has already, f is called at once. f is called once, by
// whoever ended the subscription, and must not wait. It must only be asked for once,
// and if Bounded reports true.
func (n *Notifier) OnEnd(f func()) { n.queue().whenOver(f) }

// prepare refuses misuse as upstream's Notify does, and makes sure that the queue
// knows the subscription's ID.
func (n *Notifier) prepare(s *clientNotifier, id ID) {
	n.mu.Lock()
	sub, early := n.sub, !n.callReturned
	n.mu.Unlock()
	switch {
	case sub == nil:
		panic("notification before the subscription was created")
	case sub.ID != id:
		panic("notification with another subscription's ID")
	case early:
		s.bind(id)
	}
}

// activateQueue begins delivery, after the reply that tells the client the ID.
func (n *Notifier) activateQueue() {
	n.mu.Lock()
	s, sub := n.guard, n.sub
	n.mu.Unlock()
	switch {
	case s == nil:
		return
	case sub == nil:
		s.cancel()
		return
	}
	s.bind(sub.ID)
	if s.activate(); s.isOver() {
		// It ended between the call and here: because the call failed, or with its
		// connection. The handler has taken it over meanwhile.
		n.h.endSubscription(sub.ID)
	}
}

// runCall runs an admitted call. Subscriptions and polling filters take a place of
// their own for as long as they last; a call that would make one too many is
// refused before it runs.
func (h *handler) runCall(cp *callProc, msg *jsonrpcMessage) *jsonrpcMessage {
	if c, ok := h.conn.(*guardCodec); ok && c.out != nil && msg.isSubscribe() {
		return c.runSubscribe(cp, msg)
	}
	if kind := filterCallOf(msg.Method); kind != filterNone {
		if g, client, ok := callOrigin(cp); ok && g.untrusted() {
			return g.runFilterCall(kind, client, h, cp, msg)
		}
	}
	return h.runCallback(cp, msg)
}

// callOrigin returns the guard and the client of a call.
func callOrigin(cp *callProc) (*Guard, clientKey, bool) {
	m, ok := cp.ctx.Value(messageScopeKey{}).(*messageScope)
	if !ok {
		return nil, clientKey{}, false
	}
	return m.g, m.key, true
}

func (c *guardCodec) runSubscribe(cp *callProc, msg *jsonrpcMessage) *jsonrpcMessage {
	if !c.out.reserve() {
		c.g.subs.countRefusal()
		if !c.out.limits.dryRun {
			return msg.errorResponse(&limitError{"too many subscriptions on this connection", c.g.cfg.Sub.Max})
		}
	}
	_, client, _ := callOrigin(cp)
	kept, err := c.g.keep(client, msg)
	if err != nil {
		c.g.subs.countRefusal()
		c.out.unreserve()
		return msg.errorResponse(err)
	}
	before := len(cp.notifiers)
	resp := c.h.handleCallUnguarded(cp, msg)
	if len(cp.notifiers) == before {
		kept.close()
		c.out.unreserve() // it failed before a queue was made
		return resp
	}
	n := cp.notifiers[before]
	s := n.queue()
	name, _ := parseSubscriptionName(msg.Params)
	// A trace of a chain is a stream that its client pulls, block by block, and the
	// only work is done for it: it is slowed down, never dropped.
	s.describe(name, n.namespace == "debug" && name == "traceChain")
	n.mu.Lock()
	sub := n.sub
	n.mu.Unlock()
	n.guard.keep(kept)
	switch {
	case resp.Error != nil:
		// A subscription that was made before the call failed is never delivered
		// to. Upstream keeps it until the connection closes; its place is free.
		s.cancel()
	case sub != nil:
		// The client knows the ID as soon as the reply is written, and may
		// unsubscribe before delivery begins.
		s.bind(sub.ID)
	}
	return resp
}

// unsubscribeGuarded is the callback of all unsubscribe calls on a connection with
// an outbox: what waits for the subscription, and what its producer still sends
// until it notices, must not follow the reply.
func (h *handler) unsubscribeGuarded(ctx context.Context, id ID) (bool, error) {
	ok, err := h.unsubscribe(ctx, id)
	if ok {
		h.conn.(*guardCodec).out.forget(id)
	}
	return ok, err
}

// endSubscription removes a subscription as its client's unsubscribe call would. It
// may have been removed already.
func (h *handler) endSubscription(id ID) {
	h.subLock.Lock()
	defer h.subLock.Unlock()
	if sub := h.serverSubs[id]; sub != nil {
		close(sub.err)
		delete(h.serverSubs, id)
	}
}

// limitError refuses a call that would exceed a limit on what clients may keep.
type limitError struct {
	message string
	limit   int
}

func (e *limitError) Error() string  { return e.message }
func (e *limitError) ErrorCode() int { return -32005 }
func (e *limitError) ErrorData() any {
	return struct {
		Limit int `json:"limit"`
	}{e.limit}
}

// handleSubscriptionResult is on the client's side: a notification with an error in
// place of the result is the last one of its subscription, and the error goes to
// the subscription's Err channel. The server has forgotten the subscription, so it
// is not asked to.
func (h *handler) handleSubscriptionResult(msg *jsonrpcMessage) {
	var end struct {
		ID    string          `json:"subscription"`
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(msg.Params, &end) != nil || len(end.Error) == 0 || string(end.Error) == "null" {
		h.handleSubscriptionResultUnguarded(msg)
		return
	}
	sub := h.clientSubs[end.ID]
	if sub == nil {
		return
	}
	delete(h.clientSubs, end.ID)
	jerr := new(jsonError)
	if err := json.Unmarshal(end.Error, jerr); err != nil {
		h.handleSubscriptionResultUnguarded(msg)
		return
	}
	sub.close(jerr)
}
