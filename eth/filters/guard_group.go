// SPDX-License-Identifier: LGPL-3.0-or-later

package filters

import (
	"sync"

	"github.com/ethereum/go-ethereum/rpc"
)

// feedGroups lets subscriptions that get the same events share one source.
//
// # Model
//
// Upstream gives each subscription a place in the event system and a goroutine, which
// for a thousand subscribers to new heads is a thousand channel operations and
// wake-ups an event. Here those that ask for the same form a group: one place in the
// event system, one goroutine, which encodes an event once and queues it for every
// member. That never waits for a client, so no member can hold up another, and the
// event system waits for a group no longer than the queueing takes.
//
// A group exists while it has members. The first makes it; who joins while it is being
// installed waits for that, so that every member's subscribe call returns after its
// events have begun to be caught. The last one to leave ends it.
//
// # Worked example
//
// 1000 subscribers to new heads, 500 to all logs, 500 to those of one token, and 10 to
// those of a contract of their own: 13 groups, 13 goroutines. A block costs the event
// system 13 channel operations and 12 searches of its logs (one with 2010 subscriptions
// of its own would make 2010 and 1010), and 2010 entries into queues.
//
// # Invariants
//
//   - A member gets every event from its subscribe call's return until it has left, in
//     the order in which the event system sends them.
//   - No call into a notifier or the event system is made under the lock: a notifier
//     that drops its client calls leave, and the event system may be waiting for a
//     group's goroutine.
//
// The zero value is ready for use.
type feedGroups[E any] struct {
	mu     sync.Mutex
	groups map[string]*feedGroup[E]
}

// feedGroup is the subscriptions that share a source.
type feedGroup[E any] struct {
	key    string // "" of one that nobody may join
	events chan E
	encode func(E) (*rpc.Event, error)
	source *Subscription
	err    error

	// feedGroups.mu guards the rest.
	members    feedMembers
	installing chan struct{} // closed when source and err are set, and then nil
}

// groupBuffer is how many events may wait for a group, so that the event system does
// not wait while a group is busy with the one before. Each costs every idle group 24
// bytes: a group whose member is its only one must not cost much more than upstream's
// subscription.
const groupBuffer = 4

// join has a subscription get the events of the group with the given key, until it
// ends. subscribe and encode are the same for all subscriptions of a key; an empty key
// is no other's. An error is subscribe's.
func (s *feedGroups[E]) join(key string, n *rpc.Notifier, sub *rpc.Subscription, subscribe func(chan E) (*Subscription, error), encode func(E) (*rpc.Event, error)) error {
	if !n.Shareable() {
		key = ""
	}
	g, installing, first := s.enter(key, feedMember{sub.ID, n})
	if first {
		g.encode = encode
		g.source, g.err = subscribe(g.events)
		s.mu.Lock()
		g.installing = nil
		s.mu.Unlock()
		close(installing)
		if g.err == nil {
			go s.run(g)
		}
	}
	if installing != nil {
		<-installing
	}
	if g.err != nil {
		s.leave(g, sub.ID)
		return g.err
	}
	n.OnEnd(func() { s.leave(g, sub.ID) })
	return nil
}

// enter returns the group of key with m among its members, what to wait for until its
// source is there (nil: it is), and whether m is the first.
func (s *feedGroups[E]) enter(key string, m feedMember) (g *feedGroup[E], installing chan struct{}, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g = s.groups[key]
	if first = g == nil; first {
		g = &feedGroup[E]{
			key:        key,
			events:     make(chan E, groupBuffer),
			installing: make(chan struct{}),
		}
		if key != "" {
			if s.groups == nil {
				s.groups = make(map[string]*feedGroup[E])
			}
			s.groups[key] = g
		}
	}
	g.members.add(m)
	return g, g.installing, first
}

// leave takes a member out of its group, and ends the group with its last one. It is
// called when the group has been installed, and does not wait.
func (s *feedGroups[E]) leave(g *feedGroup[E], id rpc.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !g.members.remove(id) || g.members.len() > 0 {
		return
	}
	if s.groups[g.key] == g {
		delete(s.groups, g.key)
	}
	if g.source != nil {
		go g.source.Unsubscribe() // which ends run, and waits for the event loop
	}
}

// run delivers until the group's source has been given back, because it is empty.
func (s *feedGroups[E]) run(g *feedGroup[E]) {
	for {
		select {
		case e := <-g.events:
			ev, err := g.encode(e)
			if err != nil || ev.Size() == 0 {
				continue // as upstream: what does not encode is not sent
			}
			for _, m := range s.membersOf(g) {
				m.notifier.NotifyEvent(m.id, ev)
			}
		case <-g.source.Err():
			return
		}
	}
}

// membersOf returns the members at this moment. Who leaves meanwhile has ended, so
// its notifier takes nothing any more.
func (s *feedGroups[E]) membersOf(g *feedGroup[E]) []feedMember {
	s.mu.Lock()
	defer s.mu.Unlock()
	return g.members.all()
}
