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

// EndsWithCall reports whether what works for ctx has to end with it, whatever upstream
// does: it belongs to a call of a client that is not trusted.
func EndsWithCall(ctx context.Context) bool {
	s, ok := ctx.Value(callScopeKey{}).(*callScope)
	return ok && s.g.enforces()
}

// BeginTrace is called before one transaction is traced for the call that scope belongs
// to, which need not be ctx: what goes on after a call has returned runs under a context
// of its own. It waits until the call has a processor to itself, since a call holds one
// permit however many workers it has, and returns the context to trace in: no time-out
// that a client asked for exceeds the guard's. The function it returns must be called when
// the trace is done. Without a guard ctx is returned as it is.
func BeginTrace(ctx, scope context.Context) (context.Context, func(), error) {
	s, ok := scope.Value(callScopeKey{}).(*callScope)
	if !ok || s.worker == nil {
		return ctx, func() {}, nil
	}
	select {
	case s.worker <- struct{}{}:
	case <-ctx.Done():
		return ctx, nil, ctx.Err()
	}
	unstop := func() {}
	if ctx.Value(callScopeKey{}) != s {
		// Only a call's own context carries its meter, and ends when that says so.
		ctx = context.WithValue(ctx, callScopeKey{}, s)
		if s.meter != nil {
			ctx, unstop = stopOnCancel(ctx)
			s.meter.stop = unstop // there is one worker at a time
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.g.cfg.Admission.HeavyTimeout)
	return ctx, func() {
		cancel()
		unstop()
		<-s.worker
	}, nil
}
