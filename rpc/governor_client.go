// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"sync"
	"time"
)

// clientGuard is what a governed client does around upstream's calls: it pays, reports
// the answer to the governor, and repeats what is safe to repeat. A client without one
// (nil) is upstream's.
//
// The order matters: tokens are waited for before the call reaches the client's send
// lock, so that a background call that waits holds up nobody, and before the message
// is written, so that giving up while waiting never cuts off a write.
type clientGuard struct {
	governor   *Governor
	retries    int                 // attempts beyond the first
	repeatable map[string]struct{} // besides the methods of isRead
	fallbacks  []*Client
	flights    *readFlights // nil: identical reads are not merged
	reconnects sync.Once    // for the first call: see governed
}

// CallContext calls a method and decodes the answer into result, a pointer, or drops it
// if result is nil. It returns early when ctx ends.
//
// On a client with a governor (see WithGovernor) the call waits for its share of the
// budget first; it may return a *GovernorError, and has not been sent then.
func (c *Client) CallContext(ctx context.Context, result interface{}, method string, args ...interface{}) error {
	if g := c.governed(); g != nil {
		return g.call(ctx, c, result, method, args)
	}
	return c.callContextUnguarded(ctx, result, method, args...)
}

// BatchCallContext sends the calls of b in one message and waits, as long as ctx allows,
// for the answers to all of them. The returned error is about the message; what befell a
// single call is in the Error of its element. A server may interleave the calls with
// others.
//
// On a client with a governor a batch of N waits for the share of N calls first; it may
// return a *GovernorError, and has not been sent then.
func (c *Client) BatchCallContext(ctx context.Context, b []BatchElem) error {
	if g := c.governed(); g != nil {
		return g.batch(ctx, c, b)
	}
	return c.batchCallContextUnguarded(ctx, b)
}

// Notify sends a call that is not answered, as a notification.
//
// On a client with a governor it waits for its share of the budget first; it may return
// a *GovernorError, and has not been sent then.
func (c *Client) Notify(ctx context.Context, method string, args ...interface{}) error {
	if g := c.governed(); g != nil {
		return g.notify(ctx, c, method, args)
	}
	return c.notifyUnguarded(ctx, method, args...)
}

// Subscribe calls namespace_subscribe with args and delivers what the server then sends
// to channel, a writable channel of the notifications' type. ctx is for the set-up only.
//
// A subscriber that falls 20000 notifications behind is dropped, with
// ErrSubscriptionQueueOverflow on the subscription's Err channel: give channel a buffer,
// or a reader that is never away for long.
//
// On a client with a governor the set-up waits for its share of the budget first; it may
// return a *GovernorError. What the subscription delivers costs nothing.
func (c *Client) Subscribe(ctx context.Context, namespace string, channel interface{}, args ...interface{}) (*ClientSubscription, error) {
	if g := c.governed(); g != nil && !c.isHTTP {
		return g.subscribe(ctx, c, namespace, channel, args)
	}
	return c.subscribeUnguarded(ctx, namespace, channel, args...)
}

// governed returns the client's guard if it has a governor. Every call passes here
// before it takes the send lock, so this is where reconnecting begins to cost: the dial
// of a lost connection, and the message sent again on it. That happens with the lock
// held, where nothing may wait.
func (c *Client) governed() *clientGuard {
	g := c.guard
	if g == nil || g.governor == nil {
		return nil
	}
	g.reconnects.Do(func() {
		if dial := c.reconnectFunc; dial != nil {
			c.reconnectFunc = func(ctx context.Context) (ServerCodec, error) {
				g.governor.charge(1)
				return dial(ctx)
			}
		}
	})
	return g
}

// attach returns g, which is nil without options of ours, as the guard of a client on
// conn.
func (g *clientGuard) attach(conn ServerCodec) *clientGuard {
	if hc, ok := conn.(*httpConn); ok && g != nil && g.governor != nil {
		client := *hc.client // the caller's may be in use elsewhere
		client.Transport = retryAfterTransport{client.Transport}
		hc.client = &client
	}
	return g
}

func (g *clientGuard) call(ctx context.Context, c *Client, result interface{}, method string, args []interface{}) error {
	if strings.HasSuffix(method, unsubscribeMethodSuffix) {
		// Refused or late, it would leave a subscription that nobody reads.
		g.governor.charge(1)
		return c.callContextUnguarded(ctx, result, method, args...)
	}
	if result != nil && reflect.TypeOf(result).Kind() != reflect.Pointer {
		return c.callContextUnguarded(ctx, result, method, args...) // fails before it sends
	}
	class := classOfCall(ctx, method)
	if g.flights != nil && isRead(method) && headersFromContext(ctx) == nil {
		if key, ok := flightKey(class, method, args); ok {
			return g.callMerged(ctx, c, class, key, result, method, args)
		}
	}
	return g.attempts(ctx, c, class, method, func(ctx context.Context, target *Client) error {
		return target.callContextUnguarded(ctx, result, method, args...)
	})
}

// callMerged answers a read from an identical one in flight, or makes it so that others
// can be answered from it.
func (g *clientGuard) callMerged(ctx context.Context, c *Client, class GovernorClass, key string, result interface{}, method string, args []interface{}) error {
	raw, merged, err := g.flights.do(ctx, key, func(ctx context.Context) (raw json.RawMessage, err error) {
		err = g.attempts(ctx, c, class, method, func(ctx context.Context, target *Client) error {
			return target.callContextUnguarded(ctx, &raw, method, args...)
		})
		return raw, err
	})
	if merged {
		g.governor.joined()
	}
	if err != nil || result == nil {
		return err
	}
	return json.Unmarshal(raw, result)
}

// attempts sends a single call until it is answered, cannot or may not be repeated, or
// has had its attempts.
func (g *clientGuard) attempts(ctx context.Context, c *Client, class GovernorClass, method string, send func(context.Context, *Client) error) error {
	for n := 0; ; n++ {
		epoch, err := g.governor.admit(ctx, class, 1, c.closing)
		if err != nil {
			return err
		}
		err, retryAfter := g.attempt(ctx, g.target(c, n), send)
		g.report(epoch, err, retryAfter)
		if err == nil || !g.mayRepeat(method) || !g.again(ctx, c, n, err) {
			return err
		}
	}
}

// attempt makes one attempt and returns the error as the caller is to see it, together
// with the time that an overloaded HTTP endpoint asked for.
func (g *clientGuard) attempt(ctx context.Context, target *Client, send func(context.Context, *Client) error) (error, time.Duration) {
	if !target.isHTTP {
		return send(ctx, target), 0
	}
	a := httpAttempt{Context: ctx}
	err := send(&a, target)
	if err == nil {
		return nil, a.retryAfter
	}
	return withCallError(err), a.retryAfter
}

// report tells the governor how an attempt ended.
func (g *clientGuard) report(epoch uint64, err error, retryAfter time.Duration) {
	switch {
	case err == nil:
		g.governor.answered(epoch)
	case isOverload(err):
		g.governor.overloaded(epoch, retryAfter)
	case !isEndpointFailure(err):
		g.governor.answered(epoch)
	}
}

// target returns the client for attempt n: the endpoints in turn, its own first.
func (g *clientGuard) target(c *Client, n int) *Client {
	if n %= len(g.fallbacks) + 1; n > 0 {
		return g.fallbacks[n-1]
	}
	return c
}

// again decides whether attempt n, which failed with err, is followed by another, and
// waits where neither a pause nor another endpoint makes that sensible at once.
func (g *clientGuard) again(ctx context.Context, c *Client, n int, err error) bool {
	limit := g.retries
	if limit < len(g.fallbacks) {
		limit = len(g.fallbacks)
	}
	if n >= limit || ctx.Err() != nil {
		return false
	}
	overload := isOverload(err)
	if !overload && !isEndpointFailure(err) {
		return false
	}
	// A dead endpoint pauses nobody else: only this call waits, once it has been to
	// all endpoints.
	endpoints := len(g.fallbacks) + 1
	if round := (n + 1) / endpoints; !overload && (n+1)%endpoints == 0 && !g.governor.backoff(ctx, round, c.closing) {
		return false
	}
	g.governor.retried((n+1)%endpoints != 0)
	return true
}

// mayRepeat reports whether a call of the method does the same if sent twice.
func (g *clientGuard) mayRepeat(method string) bool {
	if isRead(method) {
		return true
	}
	_, ok := g.repeatable[method]
	return ok
}

// batch pays for every element, and sends those again that were refused by an overloaded
// endpoint and may be repeated.
func (g *clientGuard) batch(ctx context.Context, c *Client, b []BatchElem) error {
	var (
		class = classOfBatch(ctx, b)
		sent  = b   // the elements of this attempt
		index []int // their places in b, nil if they are all of it
	)
	for n := 0; len(b) > 0; n++ {
		epoch, err := g.governor.admit(ctx, class, len(sent), c.closing)
		if err != nil {
			if n > 0 && index != nil {
				return nil // the elements carry their errors
			}
			return err
		}
		err, retryAfter := g.attempt(ctx, g.target(c, n), func(ctx context.Context, target *Client) error {
			return target.batchCallContextUnguarded(ctx, sent)
		})
		for i := range index {
			b[index[i]] = sent[i]
		}
		refusal := overloadedElement(sent)
		switch {
		case err == nil && refusal != nil:
			g.governor.overloaded(epoch, retryAfter)
		default:
			g.report(epoch, err, retryAfter)
		}
		switch {
		case err != nil:
			if !g.mayRepeatAll(sent) || !g.again(ctx, c, n, err) {
				if index == nil {
					return err
				}
				return nil
			}
		case refusal == nil:
			return nil
		default:
			var left []int
			for i := range sent {
				if isOverload(sent[i].Error) && g.mayRepeat(sent[i].Method) {
					left = append(left, placeOf(index, i))
				}
			}
			if len(left) == 0 || !g.again(ctx, c, n, refusal) {
				return nil
			}
			index, sent = left, make([]BatchElem, len(left))
			for i, at := range left {
				sent[i] = b[at]
				sent[i].Error = nil
			}
		}
	}
	return c.batchCallContextUnguarded(ctx, b) // empty: fails before it sends
}

func placeOf(index []int, i int) int {
	if index == nil {
		return i
	}
	return index[i]
}

// overloadedElement returns the error of the first element refused for overload.
func overloadedElement(b []BatchElem) error {
	for i := range b {
		if b[i].Error != nil && isOverload(b[i].Error) {
			return b[i].Error
		}
	}
	return nil
}

func (g *clientGuard) mayRepeatAll(b []BatchElem) bool {
	for i := range b {
		if !g.mayRepeat(b[i].Method) {
			return false
		}
	}
	return true
}

// notify pays and sends once: nobody is told whether a notification arrived.
func (g *clientGuard) notify(ctx context.Context, c *Client, method string, args []interface{}) error {
	epoch, err := g.governor.admit(ctx, classOfCall(ctx, method), 1, c.closing)
	if err != nil {
		return err
	}
	err, retryAfter := g.attempt(ctx, c, func(ctx context.Context, c *Client) error {
		return c.notifyUnguarded(ctx, method, args...)
	})
	if err != nil && isOverload(err) {
		g.governor.overloaded(epoch, retryAfter)
	}
	return err
}

// subscribe pays and sends once: a second subscription might come on top of the first.
func (g *clientGuard) subscribe(ctx context.Context, c *Client, namespace string, channel interface{}, args []interface{}) (*ClientSubscription, error) {
	epoch, err := g.governor.admit(ctx, classOfCall(ctx, namespace+subscribeMethodSuffix), 1, c.closing)
	if err != nil {
		return nil, err
	}
	sub, err := c.subscribeUnguarded(ctx, namespace, channel, args...)
	g.report(epoch, err, 0)
	return sub, err
}
