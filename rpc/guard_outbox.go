// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// errOutboxClosed is what writing returns after the connection was given up.
var errOutboxClosed = errors.New("connection closed")

// outbox is the one way out of a stream connection: replies, notifications and
// control frames leave through it, one writer at a time.
//
// # Model
//
// Replies and notifications form one queue in the order in which they came. A reply
// is written before its caller goes on (so a call holds what its reply takes until
// the last byte has left); a notification is only queued. Whoever finds the outbox
// idle starts the writer: a caller with a reply writes it itself, a notification
// is left to the node's flusher, or without one to a goroutine that ends when nothing
// waits. An idle connection has neither goroutine nor buffer.
//
// The writer takes what waits, up to batchBytes, and sends it in one system call:
// the logs of one block to one subscriber are many frames and one write.
//
// Control frames (pong, ping, close) go in front of what waits, between two
// batches. At most one of each kind waits, so a flood of pings costs nothing.
//
// # Invariants
//
//   - Only the writer sends, and only whole frames. If a send fails the connection
//     is given up, since what follows a partial frame cannot be understood.
//   - No method but writeReply waits for the client.
//   - Every reply queued is answered: written, or with an error.
//
// # Ends
//
// fail gives the connection up at once. sayGoodbye lets the send in progress finish
// for a moment, says why in a close frame and gives up then. In both cases whatever
// waits is discarded and all books return to 0.
type outbox struct {
	conn    outboxConn
	framing framing
	limits  subLimits
	events  outboxEvents
	flusher *flusher      // nil: every writer is a goroutine of its own
	done    chan struct{} // closed when the connection has been given up

	mu      sync.Mutex
	queue   fifo[outboxItem]
	control [controlKinds][]byte // a waiting frame of each kind
	writing bool                 // a writer is at work
	sent    uint64               // batches
	err     error                // not nil: nothing enters any more
	goodbye []byte               // last frame to send once err is set
	dead    bool                 // done is closed
	subs    map[ID]*clientNotifier
	fresh   []*clientNotifier // whose ID is not known yet
	places  int               // taken by subscriptions, and reserved for them
	bytes   int64             // waiting notifications, all subscriptions
	ended   []func()          // of subscriptions that have ended, to be called by unlock
}

// unlock is o.mu.Unlock for everybody who may have ended a subscription: whoever
// wants to know is told then, without the lock.
func (o *outbox) unlock() {
	ended := o.ended
	o.ended = nil
	o.mu.Unlock()
	for _, f := range ended {
		f()
	}
}

// outboxConn is a connection as its writer sees it.
type outboxConn interface {
	// send writes a batch of whole frames. An error means that the connection is
	// of no use any more.
	send(b *frameBatch) error

	// trySend writes as much of a batch as can be without waiting, maybe nothing.
	// What was written is taken off the batch, so that send goes on where it ended.
	// done says that all of it was.
	trySend(b *frameBatch) (done bool, err error)

	// hurry makes a send in progress, and any later one, fail unless it ends within
	// d. It does not wait.
	hurry(d time.Duration)

	// abort makes sends fail at once, also one in progress, and closes the
	// connection. It does not wait and may be called more than once.
	abort()
}

// outboxEvents tells the owner of an outbox what happened. It is called without
// locks, by whoever caused the event, and must not wait.
type outboxEvents interface {
	// dropped reports that s was torn down because its client did not keep up.
	dropped(s *clientNotifier, report dropReport)
}

// outboxItem is one entry of the queue: an event for a subscription, or a message, or
// a batch of them, or a notice. An item without any of them was cancelled.
type outboxItem struct {
	sub     *clientNotifier
	event   *Event
	counted bool

	msg    *jsonrpcMessage
	batch  []*jsonrpcMessage
	notice []byte      // a whole message, not framed
	wait   *outboxWait // who waits for it; nil: nobody
}

// outboxWait is how whoever queued an item learns what became of it.
type outboxWait struct {
	done chan struct{} // closed when it is over; nil: the one who waits is the writer
	over bool          // guarded by the outbox's mutex
	err  error         // valid once it is over
}

func (w *outboxWait) result() error {
	<-w.done
	return w.err
}

func (w *outboxWait) settleLocked(err error) {
	if w == nil || w.over {
		return
	}
	w.err, w.over = err, true
	if w.done != nil {
		close(w.done)
	}
}

// cancelLocked empties an item that is still queued.
func (item *outboxItem) cancelLocked(err error) {
	item.wait.settleLocked(err)
	*item = outboxItem{}
}

// newOutbox returns the outbox of a connection.
func newOutbox(conn outboxConn, f framing, limits subLimits, events outboxEvents) (*outbox, error) {
	if conn == nil || events == nil {
		return nil, errors.New("outbox: connection and events must be set")
	}
	if limits.events < 1 || limits.bytes < 1 || limits.connBytes < limits.bytes || limits.subs < 0 || limits.result < 0 {
		return nil, fmt.Errorf("outbox: limits out of range: %d events, %d bytes, %d bytes a connection (at least bytes), %d subscriptions, %d a result",
			limits.events, limits.bytes, limits.connBytes, limits.subs, limits.result)
	}
	return &outbox{conn: conn, framing: f, limits: limits, events: events, done: make(chan struct{})}, nil
}

// reserve takes a place for one more subscription. It reports false if the
// connection has as many as it may, and then takes one in a dry run only.
func (o *outbox) reserve() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	full := o.limits.subs > 0 && o.places >= o.limits.subs
	if !full || o.limits.dryRun {
		o.places++
	}
	return !full
}

// unreserve gives a place back that newNotifier did not take over.
func (o *outbox) unreserve() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.places--; o.places < 0 {
		panic("rpc: subscription place given back twice")
	}
}

// forget ends the subscription with the given ID, at its client's wish. It must
// come before the reply to the unsubscribe call is queued.
func (o *outbox) forget(id ID) {
	o.mu.Lock()
	defer o.unlock()
	if s := o.subs[id]; s != nil {
		s.endLocked()
	}
}

// writeReply writes one message, or a batch of them as one, and returns when it has
// left or will not. The message's result must not be used after that.
func (o *outbox) writeReply(msg *jsonrpcMessage, batch []*jsonrpcMessage) error {
	err := o.putReply(msg, batch)
	if err == nil && msg != nil {
		msg.recycleResult()
	}
	return err
}

func (o *outbox) putReply(msg *jsonrpcMessage, batch []*jsonrpcMessage) error {
	o.mu.Lock()
	if o.err != nil {
		o.mu.Unlock()
		return o.err
	}
	if !o.writing && o.queue.len() == 0 && !o.controlWaits() {
		o.writing = true
		o.mu.Unlock()
		return o.sendReply(msg, batch)
	}
	item := outboxItem{msg: msg, batch: batch, wait: new(outboxWait)}
	o.queue.push(item)
	if o.writing {
		item.wait.done = make(chan struct{})
		o.mu.Unlock()
		return item.wait.result()
	}
	o.writing = true
	o.mu.Unlock()
	(&outboxWriter{o: o}).run(item.wait)
	return item.wait.err
}

// sendReply is putReply for an outbox in which nothing waits: most replies find it so,
// and need no place in its queue. The writing flag is the caller's. What has come
// meanwhile is left to another goroutine.
func (o *outbox) sendReply(msg *jsonrpcMessage, batch []*jsonrpcMessage) error {
	b := newFrameBatch(o.framing)
	if msg != nil {
		b.reply(msg)
	} else {
		b.replyBatch(batch)
	}
	done, err := o.conn.trySend(b)
	if !done && err == nil {
		err = o.conn.send(b)
	}
	o.mu.Lock()
	if err != nil {
		(&outboxWriter{o: o, batch: b}).failAndUnlock(err)
		return err
	}
	o.sent++
	if o.err == nil && o.queue.len() == 0 && !o.controlWaits() {
		o.writing = false
		o.mu.Unlock()
		b.recycle()
		return nil
	}
	o.mu.Unlock()
	b.reset()
	go (&outboxWriter{o: o, batch: b}).run(nil)
	return nil
}

// wakeAndUnlock starts the writer if something waits and none is at work.
func (o *outbox) wakeAndUnlock() {
	start := !o.writing && o.err == nil && (o.queue.len() > 0 || o.controlWaits())
	if start {
		o.writing = true
	}
	o.mu.Unlock()
	switch w := (&outboxWriter{o: o}); {
	case !start:
	case o.flusher != nil:
		o.flusher.add(w)
	default:
		go w.run(nil)
	}
}

// Kinds of control frames that may wait.
const (
	controlPong = iota
	controlPing
	controlKinds
)

// sendControl queues a framed control frame; one of its kind that waits already is
// replaced (a pong for the latest ping is all that the protocol asks for).
func (o *outbox) sendControl(kind int, frame []byte) {
	o.mu.Lock()
	if o.err == nil {
		o.control[kind] = frame
	}
	o.wakeAndUnlock()
}

func (o *outbox) controlWaits() bool {
	return o.control[controlPong] != nil || o.control[controlPing] != nil
}

// progress returns the number of batches sent so far, and whether the writer is at
// work.
func (o *outbox) progress() (sent uint64, busy bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sent, o.writing
}

// dropAndUnlock tears s down because its client does not keep up, and tells the
// client: by ending the connection, or by a last message.
func (o *outbox) dropAndUnlock(s *clientNotifier, report dropReport) {
	s.endLocked()
	o.unlock()
	if o.limits.notice {
		notice := outboxItem{notice: s.dropNotice(report)}
		o.mu.Lock()
		if o.err == nil {
			o.queue.push(notice) // beyond the bounds on purpose: one small message, once
		}
		o.wakeAndUnlock()
	} else {
		reason := "slow consumer: " + s.kind() + " (" + string(report.Reason) + ")"
		o.sayGoodbye(closeFrame(websocket.CloseTryAgainLater, reason), goodbyeGrace)
	}
	o.events.dropped(s, report)
}

// goodbyeGrace is how long a send in progress may go on before a close frame. A
// slow reader takes one batch in that time (64 KiB at 200 kB/s is a third of a
// second) and learns why it was cut; one that reads nothing is cut without.
const goodbyeGrace = time.Second

// sayGoodbye gives the connection up, with frame (which may be nil) as the last
// thing that is sent if the client takes it within the grace. It does not wait; the
// outbox's done channel tells when it is over.
func (o *outbox) sayGoodbye(frame []byte, grace time.Duration) {
	if o.framing != wsFraming {
		frame = nil
	}
	o.mu.Lock()
	if o.err != nil {
		o.mu.Unlock()
		return
	}
	o.err, o.goodbye = errOutboxClosed, frame
	o.discardLocked(errOutboxClosed)
	start := !o.writing
	o.writing = true
	o.unlock()
	o.conn.hurry(grace)
	if start {
		go (&outboxWriter{o: o}).run(nil) // it may have to wait
	}
}

// fail gives the connection up at once.
func (o *outbox) fail(err error) {
	o.mu.Lock()
	if o.err == nil {
		o.err = err
		o.discardLocked(err)
	}
	o.goodbye = nil
	if !o.dead {
		o.dead = true
		close(o.done)
	}
	o.unlock()
	o.conn.abort()
}

// discardLocked empties the queue and ends all subscriptions.
func (o *outbox) discardLocked(err error) {
	o.queue.each(func(item *outboxItem) {
		if item.event != nil {
			item.sub.removeLocked(*item)
		}
		item.cancelLocked(err)
	})
	o.queue = fifo[outboxItem]{}
	o.control = [controlKinds][]byte{}
	for _, s := range slices.Clone(o.fresh) {
		s.endLocked()
	}
	for _, s := range o.subs {
		s.endLocked()
	}
}

// closeFrame returns a framed close frame. The reason is cut to what fits.
func closeFrame(code int, reason string) []byte {
	const most = 125 - 2
	payload := websocket.FormatCloseMessage(code, reason[:min(len(reason), most)])
	return append([]byte{1<<7 | websocket.CloseMessage, byte(len(payload))}, payload...)
}
