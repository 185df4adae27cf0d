// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"sync/atomic"
)

// BuildMeter counts what a method builds before there is a reply: the steps a
// tracer has recorded, the logs a query has found. A method that can grow large
// adds what it holds as it goes and stops when Add says so; the memory is what
// matters, not the encoded length, and a quarter more or less does no harm.
//
// The meter of a call is in its context. Calls of trusted servers, and all calls
// of a server without a guard, have none: a nil meter accepts everything.
//
//	meter := rpc.BuildMeterFromContext(ctx)
//	for _, header := range headers {
//		logs = append(logs, logsOf(header)...)
//		if err := meter.Add(size(logs)); err != nil {
//			return nil, err // code -32003 or -32005, sent to the client as it is
//		}
//	}
//
// At the first refusal the meter also ends the context of a call that can be ended
// so, as if its deadline had passed: a tracer's machine stops on nothing else.
//
// It may be used by several goroutines of one call. What was added is given back
// by the guard when the reply has been encoded.
type BuildMeter struct {
	reply   *replyCharge
	noJS    bool
	stop    func()       // ends the call's context; nil: it goes on
	output  atomic.Int64 // added, not charged yet; below replyStep
	working atomic.Int64
}

// BuildMeterFromContext returns the meter of the call that ctx belongs to, or
// nil if what it builds is not counted.
func BuildMeterFromContext(ctx context.Context) *BuildMeter {
	if s, ok := ctx.Value(callScopeKey{}).(*callScope); ok {
		return s.meter
	}
	return nil
}

// Add counts n bytes more of what will be the reply. Its error says that building
// must stop: "response too large" (-32003) when one reply exceeds its bound,
// "limit exceeded" (-32005, with data) when all replies together do, or when
// another client has a better claim to the memory. The error sticks.
//
// A negative n gives bytes back that were counted before.
func (m *BuildMeter) Add(n int64) error {
	if m == nil {
		return nil
	}
	return m.add(&m.output, n, (*replyCharge).build)
}

// Hold counts n bytes more of memory that is needed beside the reply, while it is
// built: indexes, headers, a second copy. It fails like Add, but for reply.max.
func (m *BuildMeter) Hold(n int64) error {
	if m == nil {
		return nil
	}
	return m.add(&m.working, n, (*replyCharge).hold)
}

func (m *BuildMeter) add(pending *atomic.Int64, n int64, charge func(*replyCharge, int64) error) error {
	if err := m.reply.err(); err != nil {
		return err
	}
	if now := pending.Add(n); now < replyStep && now > -replyStep {
		return nil
	}
	err := charge(m.reply, pending.Swap(0))
	if err != nil && m.stop != nil {
		m.stop()
	}
	return err
}

// GiveBack counts n bytes less, as Add does with a negative n, whatever the meter says:
// they have been delivered.
func (m *BuildMeter) GiveBack(n int64) {
	if m != nil {
		m.reply.build(-n)
	}
}

// Err returns the error that Add has returned or would return now.
func (m *BuildMeter) Err() error {
	if m == nil {
		return nil
	}
	return m.reply.err()
}

// JavaScript reports whether the call may run JavaScript tracers.
func (m *BuildMeter) JavaScript() bool { return m == nil || !m.noJS }
