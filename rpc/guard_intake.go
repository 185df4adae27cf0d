// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
	"github.com/gorilla/websocket"
)

const (
	// messageTime is how long a WebSocket message may take once it has begun.
	messageTime = 60 * time.Second

	// readAhead is what is read before it can be charged: a header may be in it.
	readAhead = 1 << 10
)

var (
	errMessageIdle = errors.New("message stalled")
	errMessageSlow = errors.New("message took too long")
)

// intake is the reading side of one WebSocket connection below the library: it
// charges messages while they come in, and ends the connection when they stall.
//
// A message is charged by the declared length of its data frames, one step of
// 64 KiB ahead of its bytes at most, and reads are cut to what is charged (1 KiB
// at least, since a header can only be charged once it was read). When it is
// complete its charge is trimmed to what came, and waits to be taken by whoever
// handles the message. Control frames cost nothing.
//
// Time counts only while the connection is being read: a server that stops reading
// because it has enough to do must not find the client guilty. Only payload of data
// frames is progress; pings and empty frames in the middle of a message are not, and
// where pings are paced (paceControl) the pause counts as well.
//
// 30 MiB announced in one frame and 64 bytes sent: 64 KiB are charged, for at most
// 10 s; then the connection is closed with 1008. A thousand idle connections: 0.
//
// A refusal ends the connection: the read fails, and refusal says what to tell the
// client before it is closed.
type intake struct {
	budget *byteBudget
	key    clientKey
	clock  mclock.Clock
	idle   time.Duration
	cut    func(time.Time) error // sets the read deadline
	dry    bool                  // cut nothing

	mu      sync.Mutex
	follow  frameFollower
	mem     *charge // of the message being read, nil between messages
	charged int64
	done    []*charge // of messages that are complete and not taken yet
	few     [2]*charge

	reading  bool
	entered  mclock.AbsTime // when the read now going on began
	stalled  time.Duration  // time in reads since payload came last, up to entered
	spent    time.Duration  // time in reads since the message began, up to entered
	timer    mclock.Timer
	armed    bool
	err      error
	finished bool
}

// before is called ahead of each read and returns how many bytes to read at most.
func (in *intake) before(want int) (int, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.err != nil {
		return 0, in.err
	}
	in.reading, in.entered = true, in.clock.Now()
	if in.follow.open && !in.armed {
		in.armLocked(0)
	}
	return min(want, int(max(in.charged-in.follow.received, readAhead))), nil
}

// after is called with what a read has returned. Its error takes the place of the
// read's own.
func (in *intake) after(p []byte) error {
	displaced, err := in.take(p)
	if err != nil {
		displaced.close()
	}
	return err
}

// take accounts for p. The charge it returns with an error must be closed.
func (in *intake) take(p []byte) (*charge, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.reading {
		d := in.clock.Now().Sub(in.entered)
		in.stalled, in.spent, in.reading = in.stalled+d, in.spent+d, false
	}
	if in.err != nil {
		return in.dropLocked(), in.err
	}
	for len(p) > 0 {
		received := in.follow.received
		n, ev := in.follow.next(p)
		p = p[n:]
		if ev == frameMore {
			continue
		}
		if in.follow.received != received {
			in.stalled = 0 // empty frames are no progress
		}
		if in.mem == nil {
			in.stalled, in.spent = 0, 0
			in.mem = in.openLocked()
		}
		for in.charged <= in.follow.received && in.charged < in.follow.declared {
			step := min(budgetStep, in.follow.declared-in.charged)
			if err := in.mem.grow(step); err != nil {
				in.err = err
				return in.dropLocked(), err
			}
			in.charged += step
		}
		if ev == frameEnd {
			if !in.mem.setEvict(nil) { // displaced in this very moment
				in.err = in.displacedError()
				return in.dropLocked(), in.err
			}
			in.mem.trim(in.follow.received)
			if len(in.done) == 0 {
				in.done = in.few[:0]
			}
			in.done = append(in.done, in.mem)
			in.mem, in.charged = nil, 0
		}
	}
	return nil, nil
}

// pause has the reader wait before it goes on with what it has read already. That time
// counts like a read's: it is the client who makes it necessary, and one whose frames
// always lie ready would otherwise spend none in reads. It returns the error that ended
// the reading, if one did.
func (in *intake) pause(d time.Duration) error {
	if _, err := in.before(0); err != nil {
		return err
	}
	in.clock.Sleep(d)
	return in.after(nil)
}

// openLocked returns the charge of a message that begins.
func (in *intake) openLocked() *charge {
	return in.budget.openIn(messageCharges.Get().(*charge), in.key, in)
}

// messageCharges holds charges for reuse. Only the last owner may put one back.
var messageCharges = sync.Pool{New: func() any { return new(charge) }}

// evicted implements evictee.
func (in *intake) evicted() { in.fail(in.displacedError()) }

func (in *intake) displacedError() error {
	return &budgetError{Wanted: budgetStep, Limit: in.budget.stats().Limit}
}

// dropLocked takes the unfinished message's charge away.
func (in *intake) dropLocked() *charge {
	mem := in.mem
	in.mem, in.charged = nil, 0
	return mem
}

// next returns the charge of the oldest complete message, which the caller must
// close; nil if there is none.
func (in *intake) next() *charge {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.done) == 0 {
		return nil
	}
	mem := in.done[0]
	in.done[0] = nil
	if in.done = in.done[1:]; len(in.done) == 0 {
		in.done = nil
	}
	return mem
}

// fail ends the connection's reading for the given cause. It does nothing when
// the reading has ended already.
func (in *intake) fail(cause error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.failLocked(cause)
}

func (in *intake) failLocked(cause error) {
	if in.err == nil && !in.finished && !in.dry {
		in.err = cause
		in.cut(longPast)
	}
}

// setDeadline passes a read deadline on to set, unless the reading was cut: the
// library's own deadlines must not bring it back to life.
func (in *intake) setDeadline(t time.Time, set func(time.Time) error) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.err != nil {
		return in.err
	}
	return set(t)
}

// close gives back all charges that nobody took. It must be called once the
// connection is not read any more, and may be called again.
func (in *intake) close() {
	in.mu.Lock()
	in.finished = true
	if in.armed {
		in.timer.Stop()
	}
	left := in.done
	if mem := in.dropLocked(); mem != nil {
		left = append(left, mem)
	}
	in.done = nil
	in.mu.Unlock()
	for _, mem := range left {
		mem.close()
	}
}

// refusal returns the close code and reason for a connection whose reading was
// ended by the intake, and false if it was not.
func (in *intake) refusal() (code int, reason string, ok bool) {
	in.mu.Lock()
	err := in.err
	in.mu.Unlock()
	var full *budgetError
	switch {
	case err == nil:
		return 0, "", false
	case errors.As(err, &full):
		return websocket.CloseTryAgainLater, fmt.Sprintf("request bytes: %d wanted, %d available", full.Wanted, full.Available), true
	default:
		return websocket.ClosePolicyViolation, err.Error(), true
	}
}

// fired is the timer's function.
func (in *intake) fired() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.armed = false
	if in.finished || in.err != nil || !in.follow.open {
		return
	}
	if !in.reading {
		return // the next read arms it
	}
	d := in.clock.Now().Sub(in.entered)
	switch {
	case in.stalled+d >= in.idle:
		in.failLocked(errMessageIdle)
	case in.spent+d >= messageTime:
		in.failLocked(errMessageSlow)
	default:
		in.armLocked(d)
	}
}

// armLocked starts the timer for the earlier of the two bounds, d being how long
// the current read has taken.
func (in *intake) armLocked(d time.Duration) {
	in.armed = true
	in.timer = in.clock.AfterFunc(min(in.idle-in.stalled, messageTime-in.spent)-d, in.fired)
}
