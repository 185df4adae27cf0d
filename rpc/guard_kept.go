// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import "fmt"

// Subscriptions and polling filters outlast the call that made them, and with them
// what they keep of it: the addresses and topics of a log query stay in memory, and
// every log of every block is compared with them. The call's own bytes are given
// back when it returns, so they are counted a second time, in a budget of their
// own, for as long as the subscription or filter lasts.
//
// Each counts keptBase, which is about what its goroutine, its channels and its
// entries in tables take, and the length of its parameters. (An address is 45 bytes
// of JSON and 20 in memory; the difference pays for what holds it.) With a budget of
// 256 MiB a node has room for 65536 subscriptions to newHeads, or for 4096 with a
// thousand addresses each, where stock geth keeps as many as are asked for.
//
// The budget is shared by client as all of them are: when something does not fit,
// the client that keeps most loses its oldest subscription or filter, provided that
// the newcomer's client then keeps no more than it does. Whoever loses one is told
// as a slow consumer is: by a close frame or by a last message, or by "filter not
// found" at the next poll.
//
// Trusted clients keep what they like.

// keptBase is what a subscription or a polling filter counts besides its
// parameters, in bytes.
const keptBase = 4 << 10

// newKeptBudget returns the budget of what subscriptions and polling filters keep.
// A quarter of it is for those with short parameters.
func (c GuardConfig) newKeptBudget() (*byteBudget, error) {
	b, err := newByteBudget(c.Sub.Budget, c.Sub.Budget/4, 2*keptBase)
	if err != nil {
		return nil, fmt.Errorf("--rpc.sub.budget: %w", err)
	}
	b.dry = c.DryRun
	return b, nil
}

// keep charges what a call is about to leave behind for client. The charge is
// pinned until its user says what is to happen when others need its bytes. A nil
// charge is that of a client that is not limited.
func (g *Guard) keep(client clientKey, msg *jsonrpcMessage) (*charge, error) {
	if !g.untrusted() {
		return nil, nil
	}
	kept := g.kept.open(client, nil)
	if err := kept.grow(keptBase + int64(len(msg.Params))); err != nil {
		kept.close()
		return nil, err
	}
	return kept, nil
}

// keep makes the subscription the owner of what is charged for it: given back when
// it ends, which may have happened.
func (s *clientNotifier) keep(kept *charge) {
	if kept == nil {
		return
	}
	o := s.out
	o.mu.Lock()
	over := s.state == subOver
	if !over {
		s.kept = kept
	}
	o.mu.Unlock()
	if over {
		kept.close()
		return
	}
	kept.setEvict(s.displace)
}

// displace ends the subscription because another client needs its place. It is
// called without locks.
func (s *clientNotifier) displace() {
	o := s.out
	report := dropReport{Reason: dropDisplaced, Limit: o.limits.kept}
	o.mu.Lock()
	report.Queued, report.LastBlock = s.bytes, s.written
	if s.state == subDoomed || s.state == subOver {
		o.mu.Unlock()
		return
	}
	s.dropAndUnlock(report)
}

// keep makes a polling filter the owner of what is charged for it.
func (b *filterBook) keep(id ID, kept *charge) {
	if kept == nil {
		return
	}
	b.mu.Lock()
	place := b.filters[id]
	if place != nil {
		place.kept = kept
	}
	b.mu.Unlock()
	if place == nil { // displaced as soon as it was entered
		kept.close()
		return
	}
	kept.setEvict(func() {
		b.leave(id)
		place.owner.Uninstall(id)
	})
}
