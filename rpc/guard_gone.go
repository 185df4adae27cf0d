// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"sync"
)

// stoppableContext is a context whose cancellation looks like a deadline that has
// passed. Tracers stop on nothing else: they ask their context why it ended and go
// on for as long as they like if the client has merely gone.
//
// It must have a Done channel of its own. A context derived from it takes its Err
// over when that closes; were the channel the parent's, it would be recognised and
// the parent be asked instead.
type stoppableContext struct {
	context.Context
	done chan struct{}

	mu  sync.Mutex
	err error
}

// stopOnCancel returns a context that ends with parent, always as if a deadline had
// passed, and a function that ends it and frees what it needs.
func stopOnCancel(parent context.Context) (ctx context.Context, stop func()) {
	c := &stoppableContext{Context: parent, done: make(chan struct{})}
	unregister := context.AfterFunc(parent, c.end)
	return c, func() {
		unregister()
		c.end()
	}
}

func (c *stoppableContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = context.DeadlineExceeded
		close(c.done)
	}
}

func (c *stoppableContext) Done() <-chan struct{} { return c.done }

func (c *stoppableContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// TracerContext returns the context in which to trace one transaction for a client
// that may have asked for any time-out it liked: the guard's cap is a deadline that
// no later one extends. The function that it returns frees the context. Without a
// guard ctx is returned as it is.
func TracerContext(ctx context.Context) (context.Context, context.CancelFunc) {
	s, ok := ctx.Value(callScopeKey{}).(*callScope)
	if !ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, s.g.cfg.Admission.HeavyTimeout)
}
