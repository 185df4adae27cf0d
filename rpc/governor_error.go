// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"errors"
	"fmt"
)

var (
	// ErrLocalCapacity is matched (errors.Is) by every refusal of a governor because
	// its queue is full. The call was not sent, and no endpoint is at fault.
	ErrLocalCapacity = errors.New("local capacity for outbound RPC calls exhausted")

	// ErrGovernorClosed is matched (errors.Is) by calls refused, or waiting, when the
	// governor was closed.
	ErrGovernorClosed = errors.New("governor of outbound RPC calls is closed")
)

// GovernorReason says why a governor refused a call.
type GovernorReason uint8

const (
	GovernorQueueFull GovernorReason = iota + 1 // no place to wait, or it was taken by a foreground call
	GovernorClosed                              // the governor was closed
)

// GovernorError is returned for a call that its client's governor refused. Nothing was
// sent. It is neither an HTTPError nor a net.Error nor an Error, so that code which
// looks for a failing endpoint does not find one here.
type GovernorError struct {
	Class     GovernorClass
	Reason    GovernorReason
	Displaced bool // it waited, and a foreground call took its place
	Queued    int  // calls waiting at that moment, of both classes
	MaxQueue  int  // the limit on Queued; background calls have a part of it
}

// Error describes the refusal.
func (e *GovernorError) Error() string {
	if e.Reason == GovernorClosed {
		return fmt.Sprintf("%s call not sent: %v", e.Class, ErrGovernorClosed)
	}
	verb := "not queued"
	if e.Displaced {
		verb = "displaced by a foreground call"
	}
	return fmt.Sprintf("%s call %s: %v (%d waiting, limit %d)", e.Class, verb, ErrLocalCapacity, e.Queued, e.MaxQueue)
}

// Is reports whether target is the sentinel error of the reason.
func (e *GovernorError) Is(target error) bool {
	switch e.Reason {
	case GovernorClosed:
		return target == ErrGovernorClosed
	default:
		return target == ErrLocalCapacity
	}
}
