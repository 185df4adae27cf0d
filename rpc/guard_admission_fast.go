// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"sync/atomic"
	"unsafe"
)

// fastPath admits normal calls without the gate's lock as long as nobody has to wait
// for a permit to execute. Nearly all calls of a healthy node are such calls, and what
// the lock guards, queue, shares, who has how much, decides nothing for them.
//
// # Model
//
// One word says how many permits to execute are held, by calls of all classes, below
// which bound the fast path may take one, and how many it has taken. A call is admitted
// by one compare-and-swap of that word and then listed in a free slot of a table; it
// ends by taking itself out of the slot and one off the word.
//
// A bound of 0 closes the path. Whoever is about to make a call wait for a permit to
// execute closes it first: from then on every release comes to the gate's lock and
// finds the waiter, and the calls in the table are moved to the gate's own books, by
// client, since fairness is a matter now. The path opens again when reopenAfter normal
// calls in a row have not had to wait, so that moving what the table lists costs a call
// little even if the path opens and closes for ever.
//
// # Books
//
// A call that was served is not counted when it ends: of the calls that the path took,
// those were served that were not moved, do not execute any more and have not ended
// otherwise, and the word and the gate's lock give all of that at one moment. Calls
// that fail or are cancelled end under the lock.
//
// # Invariants
//
//   - Never more permits are held than the limit that was in force when the last of
//     them was taken: the decision depends on nothing but the word that is swapped.
//   - While the path is open nobody waits who lacks only a permit to execute.
//   - While it is closed every release dispatches, and the table lists nothing but calls
//     about to move themselves: they were admitted before and listed after it closed.
//   - Only whoever has swapped a call out of its slot may touch the call.
//
// # Worked example
//
// Limit 640. 600 balance reads execute, all through the path, and 41 more arrive. 40
// are admitted, the last finds the word at its bound, takes the lock, closes the path,
// sees that there is still no permit, and waits. Each of the 640 that ends now takes
// the lock and admits the next in turn.
type fastPath struct {
	_     [cacheLine]byte
	word  atomic.Uint64 // taken<<48 | bound<<24 | held
	_     [cacheLine]byte
	high  atomic.Uint64 // most that were held
	_     [cacheLine]byte
	slots [fastSlots]fastSlot
}

const (
	fastBits  = 24
	fastMax   = 1<<fastBits - 1 // calls executing at once, more than memory has room for
	fastTaken = 1 << (2 * fastBits)

	fastSlots  = 1024
	fastProbes = 4 // slots that a call tries

	// reopenAfter is how many normal calls must find a permit at once before the path
	// opens again. Moving a call to the gate's books takes about as long as admitting
	// it there, and at most the limit are moved, 640 by default.
	reopenAfter = 1024

	// cacheLine is what processors fetch at once, two lines on most of them. What
	// different processors write must be so far apart.
	cacheLine = 128
)

// fastSlot holds a call, nil, or frozenCall while somebody reads the call.
type fastSlot struct {
	call atomic.Pointer[gateCall]
	_    [cacheLine - 8]byte
}

var frozenCall = new(gateCall)

// held returns how many permits to execute are held.
func (f *fastPath) held() int { return int(f.word.Load() & fastMax) }

func (f *fastPath) isOpen() bool { return f.word.Load()>>fastBits&fastMax != 0 }

// take takes a permit below the given limit, for a call that the gate's lock admits.
func (f *fastPath) take(limit int) bool {
	for {
		word := f.word.Load()
		if word&fastMax >= uint64(min(limit, fastMax)) {
			return false
		}
		if f.word.CompareAndSwap(word, word+1) {
			f.raiseHigh(word&fastMax + 1)
			return true
		}
	}
}

// takeFast takes a permit below the bound.
func (f *fastPath) takeFast() bool {
	for {
		word := f.word.Load()
		if word&fastMax >= word>>fastBits&fastMax || word+fastTaken < word {
			return false
		}
		if f.word.CompareAndSwap(word, word+fastTaken+1) {
			f.raiseHigh(word&fastMax + 1)
			return true
		}
	}
}

func (f *fastPath) raiseHigh(n uint64) {
	for high := f.high.Load(); n > high && !f.high.CompareAndSwap(high, n); {
		high = f.high.Load()
	}
}

// give returns a permit and reports whether the path is open: if not, somebody may be
// waiting for it.
func (f *fastPath) give() (open bool) { return f.word.Add(^uint64(0))>>fastBits&fastMax != 0 }

// setBound opens the path up to a limit, or closes it with 0. It returns how many calls
// the path has taken since it was called last.
func (f *fastPath) setBound(limit int) (taken uint64) {
	for {
		word := f.word.Load()
		if f.word.CompareAndSwap(word, uint64(min(limit, fastMax))<<fastBits|word&fastMax) {
			return word / fastTaken
		}
	}
}

// unlist takes a call out of its slot. It returns false if the call is not there, or is
// being looked at under the gate's lock.
func (c *gateCall) unlist() bool {
	if c.slot == nil || !c.slot.call.CompareAndSwap(c, nil) {
		return false
	}
	c.slot = nil
	return true
}

// each calls fn with every call in the table. The gate's lock must be held.
func (f *fastPath) each(fn func(*gateCall)) {
	for i := range f.slots {
		s := &f.slots[i]
		if c := s.call.Load(); c != nil && s.call.CompareAndSwap(c, frozenCall) {
			fn(c)
			s.call.Store(c)
		}
	}
}

// fastAdmit admits a normal call if the path is open.
func (g *gate) fastAdmit(c *gateCall) bool {
	if !g.fast.takeFast() {
		return false
	}
	g.fastList(c)
	return true
}

// fastList notes that a call executes for which the fast path has taken a permit.
func (g *gate) fastList(c *gateCall) {
	// Which slot depends on where the call is in memory, so that processors seldom meet.
	i := uint64(uintptr(unsafe.Pointer(c))) * 0x9e3779b97f4a7c15 >> 32
	for end := i + fastProbes; i < end; i++ {
		c.slot = &g.fast.slots[i%fastSlots]
		if !c.slot.call.CompareAndSwap(nil, c) {
			continue
		}
		if g.fast.isOpen() {
			return
		}
		// The path was closed, and perhaps the table emptied before the call was in it.
		g.mu.Lock()
		if c.slot.call.CompareAndSwap(c, nil) {
			g.moveLocked(c)
		}
		g.mu.Unlock()
		return
	}
	c.slot = nil // the table is full there
	g.mu.Lock()
	g.moveLocked(c)
	g.mu.Unlock()
}

// fastGive gives back the permit of a call that is listed no more.
func (g *gate) fastGive() {
	if !g.fast.give() {
		g.mu.Lock()
		g.dispatchLocked()
		g.mu.Unlock()
	}
}

// moveLocked enters a call of the fast path into the gate's books.
func (g *gate) moveLocked(c *gateCall) {
	g.fastMoved++
	g.joinLocked(c, g.clientLocked(c.key))
	g.grantLocked(c)
}

// closeFastLocked closes the fast path, so that from now on no permit is taken or
// given back unseen, and reports whether it was open: then a permit may have been
// given back since the caller last looked.
func (g *gate) closeFastLocked() bool {
	g.quiet = 0
	if !g.fast.isOpen() {
		return false
	}
	g.setBoundLocked(0)
	for i := range g.fast.slots {
		s := &g.fast.slots[i]
		if c := s.call.Load(); c != nil && s.call.CompareAndSwap(c, nil) {
			g.moveLocked(c)
		}
	}
	return true
}

// openFastLocked opens the path after a normal call was admitted that did not wait,
// if there have been enough of those.
func (g *gate) openFastLocked() {
	if g.quiet++; (g.quiet >= g.reopenAfter || g.fast.isOpen()) && !g.dry {
		// Also when it is open: the count of calls in the word may be full.
		g.setBoundLocked(g.limit.Concurrency)
		g.quiet = 0
	}
}

func (g *gate) setBoundLocked(limit int) { g.fastTook += g.fast.setBound(limit) }

// book returns the book of a class as of now. While calls are live the sum of the rest
// is behind Arrived by them; when idle it is exact.
func (g *gate) book(class callClass) bookTotals {
	if class != classNormal {
		return g.books[class].total()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.books[class].total()
	word := g.fast.word.Load()
	took := g.fastTook + word/fastTaken
	live := word&fastMax - uint64(g.held[permitExec])
	t.Arrived += took
	t.Served += took - g.fastMoved - g.fastEnded - live
	return t
}
