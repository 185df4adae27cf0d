// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"errors"
	"fmt"
	"slices"
)

var (
	// errSubscriptionOver is what sending to a subscription returns once it has
	// ended, whoever ended it.
	errSubscriptionOver = errors.New("subscription is over")

	// errSubscriptionDropped is the same for a subscription that ended because its
	// client did not keep up.
	errSubscriptionDropped = errors.New("subscription dropped: the client does not keep up")
)

// subLimits bounds what waits for a client that does not keep up.
type subLimits struct {
	events    int   // events waiting for one subscription
	bytes     int64 // bytes waiting for one subscription
	connBytes int64 // bytes waiting for all subscriptions of the connection
	subs      int   // subscriptions of the connection; 0: any number
	result    int64 // bytes of one result; 0: any number
	kept      int64 // bytes that the subscriptions of the node may keep; for reports
	notice    bool  // a dropped client is told by a message, and its connection stays
	dryRun    bool  // drops are reported, but the producer waits instead
	books     *subBooks
}

// burstShare is how many times connBytes the queues of one connection may hold when an event
// enters one that is empty. A client that keeps up has hardly anything waiting when a block
// comes. But 1024 subscriptions of one connection, each to logs of an address more, are 1024
// empty queues: a block with 41000 logs of 500 bytes would put 20 GiB into them at once.
const burstShare = 4

// clientNotifier is the queue between one subscription and its client.
//
// # Model
//
// Whoever produces events (the event loop of the filters, the downloader, the peer
// feed) hands them to notify, which never waits: the event enters the queue, or the
// subscription ends. The queue is a part of its connection's outbox, which holds
// what waits for all subscriptions of the connection, and the replies between it,
// in the order in which it is written.
//
// A subscription passes through these states, forward only:
//
//	held     events are kept back until the subscribe call's reply has been written
//	doomed   held, and more came than may wait; what was kept is gone already
//	live     events are queued as they come
//	over     unsubscribed, dropped, or the connection is gone
//
// # Bounds
//
// What waits is bounded by events, by bytes, and by bytes of the whole connection,
// held events included. An event that enters an empty queue is not refused,
// whatever its size, before those of the connection hold burstShare times its bytes;
// neither the event being written nor that first one measures
// the client, what piles up behind them does. Events sent one by one through Notify
// have no number (nobody can tell which of them belong together), only bytes.
//
// Example, with the defaults of 4096 events and 8 MiB: a client that takes nothing
// has 4096 heads (2 to 14 hours of blocks) or 8 MiB of transactions waiting before
// it is dropped. One block with 20 MiB of logs reaches a client that keeps up: it
// enters an empty queue. Of a second such block right behind it the same is true,
// once the writer has begun with the first.
//
// # Invariants
//
//   - What a live subscription delivers is complete and in order. It ends with the
//     first event that does not fit; there is no gap before it and nothing after.
//   - Nothing is delivered before the subscribe call's reply or after the
//     unsubscribe call's.
//   - A subscription is dropped at most once, and not at all if it ended otherwise.
//   - waiting bytes of all states but live and held are 0.
//
// # Non-goals
//
// Nothing is merged, skipped or fetched again for a slow client. In-process clients
// and pull streams (debug traceChain) have no clientNotifier, or a blocking one:
// they are slowed down instead.
type clientNotifier struct {
	out       *outbox
	namespace string

	// The outbox's mutex guards the rest.
	name    string        // of the subscription, one of those that are registered
	ready   chan struct{} // of a pull stream: closed when it may send, or is over
	id      ID            // "" until it is known
	state   subState
	doom    dropReport   // in state doomed
	held    []outboxItem // in state held
	items   int          // waiting, counted ones and others
	events  int          // waiting, counted ones
	bytes   int64        // waiting
	written uint64       // block of the last event that was written whole; 0: none
	waits   bool         // a producer waits, or has waited
	kept    *charge      // for what it keeps of its request
	onEnd   func()       // nil: nobody wants to know
}

type subState uint8

const (
	subHeld subState = iota
	subDoomed
	subLive
	subOver
)

// newNotifier returns the queue of a subscription about to be made, in state held.
// It takes over a place that reserve granted, and gives it back when it ends.
func (o *outbox) newNotifier(namespace string) *clientNotifier {
	s := &clientNotifier{out: o, namespace: namespace}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fresh = append(o.fresh, s)
	o.limits.books.count(1, 0)
	if o.err != nil {
		s.endLocked()
	}
	return s
}

// describe tells the queue the name of its subscription, and whether it is a pull
// stream, whose producer is made to wait for its client. It comes before activate;
// until then events are kept back whatever they are.
func (s *clientNotifier) describe(name string, pull bool) {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	s.name = name
	if pull {
		s.ready = make(chan struct{})
		if s.state == subOver {
			close(s.ready)
		}
	}
}

// bind tells the queue the ID of its subscription, before the first event or, at
// the latest, before the subscribe call's reply is written: the client may
// unsubscribe as soon as it knows the ID. Later calls change nothing.
func (s *clientNotifier) bind(id ID) {
	o := s.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if s.id != "" || s.state == subOver {
		return
	}
	s.id = id
	o.fresh = slices.DeleteFunc(o.fresh, func(f *clientNotifier) bool { return f == s })
	if o.subs == nil {
		o.subs = make(map[ID]*clientNotifier)
	}
	o.subs[id] = s
}

// cancel ends a subscription that nobody is going to use. Nobody is told.
func (s *clientNotifier) cancel() {
	s.out.mu.Lock()
	defer s.out.unlock()
	s.endLocked()
}

// whenOver has f called once when the subscription ends, or now if it has. f must not
// wait.
func (s *clientNotifier) whenOver(f func()) {
	s.out.mu.Lock()
	if s.state != subOver {
		s.onEnd = f
		s.out.mu.Unlock()
		return
	}
	s.out.mu.Unlock()
	f()
}

// kind names the subscription for people: "eth newHeads".
func (s *clientNotifier) kind() string { return s.namespace + " " + s.name }

// notify queues ev. counted says that ev is one whole event of the node and not
// one of several calls that belong together.
//
// It never waits, except for a pull stream, whose producer waits until the event
// has been written. An error means that the subscription is over; errors differ
// only in why.
func (s *clientNotifier) notify(ev *Event, counted bool) error {
	o := s.out
	o.mu.Lock()
	if ready := s.ready; ready != nil {
		o.mu.Unlock()
		<-ready
		o.mu.Lock()
		return s.waitAndUnlock(ev)
	}
	switch s.state {
	case subOver:
		o.mu.Unlock()
		return errSubscriptionOver
	case subDoomed:
		o.mu.Unlock()
		return errSubscriptionDropped
	}
	report, ok := s.admitLocked(ev, counted)
	switch {
	case ok || o.limits.dryRun && s.state == subHeld:
		item := outboxItem{sub: s, event: ev, counted: counted}
		s.addLocked(item)
		if s.state == subHeld {
			s.held = append(s.held, item)
		} else {
			o.queue.push(item)
		}
		o.wakeAndUnlock()
		return nil

	case o.limits.dryRun:
		// As upstream does: the producer waits. It is counted once, as a real drop
		// would be.
		first := !s.waits
		err := s.waitAndUnlock(ev)
		if first {
			o.events.dropped(s, report)
		}
		return err

	default:
		s.dropAndUnlock(report)
		return errSubscriptionDropped
	}
}

// dropAndUnlock ends a subscription that is held or live for the reason reported.
func (s *clientNotifier) dropAndUnlock(report dropReport) {
	if s.state == subHeld {
		// The handler does not know the subscription yet: it takes it over when
		// the subscribe call has returned. Torn down now, it would be put back.
		s.state, s.doom = subDoomed, report
		s.forgetHeldLocked()
		s.out.mu.Unlock()
		return
	}
	s.out.dropAndUnlock(s, report)
}

// waitAndUnlock queues ev and waits until it has been written.
func (s *clientNotifier) waitAndUnlock(ev *Event) error {
	o := s.out
	if s.state != subLive {
		o.mu.Unlock()
		return errSubscriptionOver
	}
	s.waits = true
	item := outboxItem{sub: s, event: ev, wait: &outboxWait{done: make(chan struct{})}}
	o.queue.push(item)
	o.wakeAndUnlock()
	return item.wait.result()
}

// activate begins delivery, after the subscribe call's reply has been written.
func (s *clientNotifier) activate() {
	o := s.out
	o.mu.Lock()
	switch s.state {
	case subHeld:
		s.state = subLive
		if s.ready != nil {
			close(s.ready)
		}
		for _, item := range s.held {
			o.queue.push(item)
		}
		s.held = nil
		o.wakeAndUnlock()
	case subDoomed:
		o.dropAndUnlock(s, s.doom)
	default:
		o.mu.Unlock()
	}
}

// isOver reports whether the subscription has ended.
func (s *clientNotifier) isOver() bool {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	return s.state == subOver
}

// admitLocked decides whether ev may wait. If not, the report says which limit it
// would exceed, and what waits under that limit already.
func (s *clientNotifier) admitLocked(ev *Event, counted bool) (report dropReport, ok bool) {
	refuse := func(reason dropReason, queued, limit int64) (dropReport, bool) {
		return dropReport{Reason: reason, Queued: queued, Limit: limit, LastBlock: s.written}, false
	}
	l := &s.out.limits
	if l.result > 0 {
		for _, result := range ev.results {
			if n := int64(len(result)); n > l.result {
				return refuse(dropTooLarge, n, l.result)
			}
		}
	}
	switch {
	case s.items == 0 && s.out.bytes/burstShare <= l.connBytes:
		return dropReport{}, true
	case counted && s.events >= l.events:
		return refuse(dropEvents, int64(s.events), int64(l.events))
	case s.bytes+ev.size > l.bytes:
		return refuse(dropBytes, s.bytes, l.bytes)
	case s.out.bytes+ev.size > l.connBytes:
		return refuse(dropConnBytes, s.out.bytes, l.connBytes)
	}
	return dropReport{}, true
}

// addLocked enters an item into the books. One whose producer waits is in none:
// its client slows the producer down, so it cannot fall behind.
func (s *clientNotifier) addLocked(item outboxItem) {
	if item.wait != nil {
		return
	}
	s.items++
	if item.counted {
		s.events++
	}
	s.bytes += item.event.size
	s.out.bytes += item.event.size
	s.out.limits.books.count(0, item.event.size)
}

// removeLocked takes an item off the books, because its writing begins or because
// nobody wants it any more.
func (s *clientNotifier) removeLocked(item outboxItem) {
	if item.wait != nil {
		return
	}
	s.items--
	if item.counted {
		s.events--
	}
	s.bytes -= item.event.size
	s.out.bytes -= item.event.size
	s.out.limits.books.count(0, -item.event.size)
	if s.items < 0 || s.events < 0 || s.bytes < 0 || s.out.bytes < 0 {
		panic(fmt.Sprintf("rpc: books of subscription %s: %d items, %d events, %d bytes", s.id, s.items, s.events, s.bytes))
	}
}

func (s *clientNotifier) forgetHeldLocked() {
	for _, item := range s.held {
		s.removeLocked(item)
	}
	s.held = nil
}

// endLocked ends the subscription and gives back all that it holds, except what a
// write in progress is still sending.
func (s *clientNotifier) endLocked() {
	if s.state == subOver {
		return
	}
	if s.ready != nil && (s.state == subHeld || s.state == subDoomed) {
		close(s.ready)
	}
	s.forgetHeldLocked()
	if s.items > 0 || s.waits {
		s.out.queue.each(func(item *outboxItem) {
			if item.sub == s {
				s.removeLocked(*item)
				item.cancelLocked(errSubscriptionOver)
			}
		})
	}
	s.state = subOver
	s.kept.close()
	if s.onEnd != nil {
		s.out.ended = append(s.out.ended, s.onEnd)
		s.onEnd = nil
	}
	s.out.places--
	s.out.limits.books.count(-1, 0)
	if s.id == "" {
		s.out.fresh = slices.DeleteFunc(s.out.fresh, func(f *clientNotifier) bool { return f == s })
	} else {
		delete(s.out.subs, s.id)
	}
}
