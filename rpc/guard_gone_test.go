// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"errors"
	"testing"
	"time"
)

// A tracer derives its context from that of its call and stops when that says that a
// deadline has passed. It must say so when the client has gone.
func TestGuardTracersStopWhenTheirClientLeaves(t *testing.T) {
	client, leave := context.WithCancel(context.Background())
	ctx, stop := stopOnCancel(context.WithValue(client, callScopeKey{}, "kept"))
	defer stop()
	tracer, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	if tracer.Err() != nil || tracer.Value(callScopeKey{}) != "kept" {
		t.Fatalf("before: %v, %v", tracer.Err(), tracer.Value(callScopeKey{}))
	}
	leave()
	<-tracer.Done()
	if !errors.Is(tracer.Err(), context.DeadlineExceeded) {
		t.Errorf("a tracer is told %v", tracer.Err())
	}
}

// What a client asks for is capped: a time-out of an hour is the guard's.
func TestGuardTraceTimeoutIsCapped(t *testing.T) {
	g, err := NewGuard(DefaultGuardConfig, GuardEnv{Procs: 2, HTTPBodyLimit: defaultBodyLimit})
	if err != nil {
		t.Fatal(err)
	}
	s := &callScope{g: g, worker: make(chan struct{}, 1)}
	scope := context.WithValue(context.Background(), callScopeKey{}, s)
	ctx, done, err := BeginTrace(scope, scope)
	if err != nil {
		t.Fatal(err)
	}
	tracer, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	if d, ok := tracer.Deadline(); !ok || time.Until(d) > 30*time.Second {
		t.Errorf("deadline %v, %v", d, ok)
	}
	left, leave := context.WithCancel(scope)
	leave()
	if _, _, err := BeginTrace(left, scope); err == nil {
		t.Error("a second worker got the processor")
	}
	done()
	if _, done, err := BeginTrace(scope, scope); err != nil {
		t.Error(err)
	} else {
		done()
	}
}
