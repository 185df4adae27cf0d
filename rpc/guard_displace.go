// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"cmp"
	"slices"
	"time"
)

const (
	// A transfer is slow below slowRate, in bytes a second, or if the whole of it
	// would take longer than slowTotal at its pace. Only when somebody else's bytes
	// do not fit does it matter.
	slowRate  = 16 << 10
	slowTotal = 15 * time.Minute
)

// slowTransfer reports whether a client that takes rate bytes a second takes too long
// for the size bytes that it holds.
//
// 20 MB at 2 KiB/s, which are on their way for three hours, are slow, and so are 20 MB
// at 20 KB/s, 17 minutes; at 50 KB/s they are not, and 2 MB are not at 17 KB/s.
func slowTransfer(rate, size int64) bool {
	return rate < max(slowRate, size/int64(slowTotal/time.Second))
}

// makeRoomLocked displaces slow transfers, and then whom the shares name, until c
// fits with want bytes. If it cannot, nobody is displaced: the rules are checked on
// the running numbers first, and what was taken out is put back. A slow transfer is
// then its client's first to go.
func (b *byteBudget) makeRoomLocked(c *charge, want int64) ([]evictee, bool) {
	if c.displaced || want > b.limit {
		return nil, false
	}
	whole, big := b.excessLocked(c, want)
	if whole <= 0 && big <= 0 {
		return nil, true
	}
	if b.dry {
		return nil, false
	}
	var (
		out   []*charge
		sizes []int64
		mine  = b.heldLocked(c.key) - c.size + want
		slow  = b.slowLocked(c.key, big > 0)
	)
	for whole > 0 || big > 0 {
		var victim *charge
		if len(slow) > 0 {
			victim, slow = slow[0].charge, slow[1:]
		} else if victim = b.victimLocked(big > 0); victim != nil && !b.yieldsLocked(victim, c.key, mine) {
			victim = nil
		}
		if victim == nil || len(out) == maxEvictions {
			for i := len(out) - 1; i >= 0; i-- {
				b.restoreLocked(out[i], sizes[i])
			}
			return nil, false
		}
		out, sizes = append(out, victim), append(sizes, victim.size)
		b.setLocked(victim, 0)
		whole, big = b.excessLocked(c, want)
	}
	told := make([]evictee, len(out))
	for i, victim := range out {
		victim.displaced = true
		told[i], victim.onEvict = victim.onEvict, nil
	}
	b.evicted += uint64(len(out))
	return told, true
}

// slowCharge is a transfer that is slow at the moment.
type slowCharge struct {
	*charge
	rate int64 // bytes a second
}

// slowLocked returns the slow transfers of others than key, slowest first and of
// equals the largest. It looks at all of them, which happens only when something does
// not fit and some have been on their way for long enough to be judged.
func (b *byteBudget) slowLocked(key clientKey, big bool) (slow []slowCharge) {
	if b.paced == nil || !b.paced() {
		return nil
	}
	for k, cl := range b.clients {
		if k == key {
			continue
		}
		slow = appendSlow(slow, &cl.big)
		if !big {
			slow = appendSlow(slow, &cl.small)
		}
	}
	slices.SortFunc(slow, func(a, b slowCharge) int {
		return cmp.Or(cmp.Compare(a.rate, b.rate), cmp.Compare(b.size, a.size))
	})
	return slow
}

func appendSlow(slow []slowCharge, list *linkedList[*charge]) []slowCharge {
	for n := list.first; n != nil; n = n.next {
		transfer, ok := n.of.onEvict.(pacedEvictee)
		if !ok {
			continue
		}
		if rate, known := transfer.pace(); known && slowTransfer(rate, n.of.size) {
			slow = append(slow, slowCharge{n.of, rate})
		}
	}
	return slow
}

// yieldsLocked reports whether a transfer that is not slow goes for a charge of the
// client key, which then holds mine bytes in all.
func (b *byteBudget) yieldsLocked(victim *charge, key clientKey, mine int64) bool {
	if victim.key == key {
		return false
	}
	return mine <= b.heldLocked(victim.key)-victim.size || mine <= victim.size && b.stoppedLocked(victim)
}

// victimLocked returns the transfer that goes next, nil if there is none.
func (b *byteBudget) victimLocked(big bool) *charge {
	if big {
		key, held := b.anyBig.greediest()
		if held == 0 {
			return nil
		}
		return b.clients[key].big.front()
	}
	key, held := b.any.greediest()
	if held == 0 {
		return nil
	}
	// Of small and large ones the small go first only if there is no other:
	// one large transfer cut short frees what dozens of small ones would.
	if cl := b.clients[key]; cl.big.n == 0 {
		return cl.small.front()
	}
	return b.clients[key].big.front()
}

// stoppedLocked reports whether a transfer has stopped, by the pace it had.
func (b *byteBudget) stoppedLocked(c *charge) bool {
	if b.pause == 0 || c.grows == 0 {
		return false
	}
	pace := c.latest.Sub(c.first) / time.Duration(c.grows)
	return b.clock.Now().Sub(c.latest) > b.pause+4*pace
}
