// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
	"github.com/ethereum/go-ethereum/metrics"
)

// FilterLimits bounds what waits in polling filters, in bytes.
type FilterLimits struct {
	Bytes      int64 // in one filter
	TotalBytes int64 // in all filters of a node
}

// PollingFilters is how the guard reaches the polling filters of an API: they are
// made by methods that know neither their client nor a way to refuse.
type PollingFilters interface {
	// Limit puts a new filter under limits. Of client it is only known that equal
	// values are the same client.
	Limit(id ID, client any, limits FilterLimits)
	// Alive reports which of the given filters exist.
	Alive(ids []ID) []bool
	// Uninstall removes a filter, as its client's call would.
	Uninstall(id ID)
	// Forget takes a filter off the books that its client has uninstalled.
	Forget(id ID)
}

// filterOwner is the receiver of the methods that make polling filters.
type filterOwner interface {
	PollingFilters() (PollingFilters, bool)
}

// filterBook counts the polling filters of a node, shared by client.
//
// A filter is entered when the call that makes it returns, and leaves when its
// client uninstalls it or when it is found gone: filters expire by themselves, and
// those that overflow are removed. They are looked for every sweepTick, and when a
// place is needed, then at most once in sweepPause.
//
// A client may have as many as are idle, up to its own limit. When the node has no
// place left, the client that has most loses the one it has not polled for longest,
// unless the newcomer would then have more than that client.
type filterBook struct {
	max, perClient int
	clock          mclock.Clock

	mu       sync.Mutex
	filters  map[ID]*filterPlace
	held     shares // places, those being made included
	taken    int
	swept    mclock.AbsTime
	timer    mclock.Timer // set while there are filters
	refused  int64
	displace int64
}

type filterPlace struct {
	client clientKey
	owner  PollingFilters
	polled mclock.AbsTime
	kept   *charge // for what it keeps of its request
}

const (
	// sweepPause is the least time between two searches for filters that have gone.
	sweepPause = time.Second

	// sweepTick is how long a filter that has expired is counted at most.
	sweepTick = 10 * time.Second
)

var (
	filterActiveGauge    = metrics.NewRegisteredGauge("rpc/filter/active", nil)
	filterActiveMaxGauge = metrics.NewRegisteredGauge("rpc/filter/active/max", nil)
	filterRefusedGauge   = metrics.NewRegisteredGauge("rpc/filter/refused", nil)
)

func newFilterBook(max, perClient int, clock mclock.Clock) *filterBook {
	return &filterBook{max: max, perClient: perClient, clock: clock, filters: make(map[ID]*filterPlace), swept: clock.Now()}
}

// reserve takes a place for a filter that client is about to make, or returns the
// error that refuses it.
func (b *filterBook) reserve(client clientKey, limitClient bool) error {
	b.mu.Lock()
	full := func() bool {
		return b.taken >= b.max || limitClient && b.held.held(client) >= int64(b.perClient)
	}
	if full() {
		b.sweepPausedAndLock()
	}
	if limitClient && b.held.held(client) >= int64(b.perClient) {
		b.refuseAndUnlock()
		return &limitError{"too many filters of this client", b.perClient}
	}
	if b.taken < b.max {
		b.takeLocked(client, 1)
		b.mu.Unlock()
		return nil
	}
	loser, place := b.loserLocked(client)
	if place == nil {
		b.refuseAndUnlock()
		return &limitError{"too many filters", b.max}
	}
	b.leaveLocked(loser)
	b.takeLocked(client, 1)
	b.displace++
	b.mu.Unlock()
	place.owner.Uninstall(loser)
	return nil
}

// status says what is used of the limit, and how often it was met.
func (b *filterBook) status() map[string]int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return map[string]int64{
		"active": int64(b.taken), "limit": int64(b.max), "limitPerClient": int64(b.perClient),
		"refused": b.refused, "displaced": b.displace,
	}
}

func (b *filterBook) refuseAndUnlock() {
	b.refused++
	b.mu.Unlock()
	filterRefusedGauge.Inc(1)
}

// loserLocked names the filter whose place client gets.
func (b *filterBook) loserLocked(client clientKey) (loser ID, place *filterPlace) {
	greediest, most := b.held.greediest()
	if greediest == client || b.held.held(client)+1 > most-1 {
		return "", nil
	}
	for id, p := range b.filters {
		if p.client == greediest && (place == nil || p.polled < place.polled) {
			loser, place = id, p
		}
	}
	return loser, place
}

// enter books the filter that was made on a place reserved before.
func (b *filterBook) enter(id ID, client clientKey, owner PollingFilters) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.filters[id] = &filterPlace{client: client, owner: owner, polled: b.clock.Now()}
	if b.timer == nil {
		b.timer = b.clock.AfterFunc(sweepTick, b.tick)
	}
}

// tick looks for filters that have gone while nobody needs their places.
func (b *filterBook) tick() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.swept = b.clock.Now()
	b.sweepAndLock()
	b.timer = nil
	if len(b.filters) > 0 {
		b.timer = b.clock.AfterFunc(sweepTick, b.tick)
	}
}

// unreserve gives back a place on which no filter was made.
func (b *filterBook) unreserve(client clientKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.takeLocked(client, -1)
}

// polled notes that a filter is in use.
func (b *filterBook) polled(id ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.filters[id]; p != nil {
		p.polled = b.clock.Now()
	}
}

// leave takes a filter off all books. It may have left already.
func (b *filterBook) leave(id ID) {
	b.mu.Lock()
	p := b.filters[id]
	b.leaveLocked(id)
	b.mu.Unlock()
	if p != nil {
		p.owner.Forget(id)
	}
}

func (b *filterBook) leaveLocked(id ID) {
	if p := b.filters[id]; p != nil {
		delete(b.filters, id)
		b.takeLocked(p.client, -1)
		p.kept.close()
	}
}

func (b *filterBook) takeLocked(client clientKey, n int) {
	b.taken += n
	if n > 0 {
		b.held.add(client, int64(n))
	} else {
		b.held.remove(client, int64(-n))
	}
	filterActiveGauge.Inc(int64(n))
	filterActiveMaxGauge.UpdateIfGt(int64(b.taken))
}

// sweep looks for filters that have gone, unless that was done just now.
func (b *filterBook) sweep() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sweepPausedAndLock()
}

// sweepPausedAndLock is sweepAndLock, at most once in sweepPause.
func (b *filterBook) sweepPausedAndLock() {
	if b.clock.Now().Sub(b.swept) >= sweepPause {
		b.swept = b.clock.Now()
		b.sweepAndLock()
	}
}

// sweepAndLock takes filters off the books that have gone. It gives up the lock
// while it asks for them, since whoever answers has locks of its own.
func (b *filterBook) sweepAndLock() {
	byOwner := make(map[PollingFilters][]ID)
	for id, p := range b.filters {
		byOwner[p.owner] = append(byOwner[p.owner], id)
	}
	b.mu.Unlock()
	var gone []ID
	for owner, ids := range byOwner {
		for i, alive := range owner.Alive(ids) {
			if !alive {
				gone = append(gone, ids[i])
			}
		}
	}
	b.mu.Lock()
	for _, id := range gone {
		b.leaveLocked(id)
	}
}

// filterCall says what a method does to polling filters.
type filterCall uint8

const (
	filterNone filterCall = iota
	filterMake
	filterPoll
	filterRemove
)

func filterCallOf(method string) filterCall {
	name, ok := strings.CutPrefix(method, "eth_")
	if !ok {
		return filterNone
	}
	switch name {
	case "newFilter", "newBlockFilter", "newPendingTransactionFilter":
		return filterMake
	case "getFilterChanges", "getFilterLogs":
		return filterPoll
	case "uninstallFilter":
		return filterRemove
	}
	return filterNone
}

// runFilterCall runs a call that makes, polls or removes a polling filter.
func (g *Guard) runFilterCall(kind filterCall, client clientKey, h *handler, cp *callProc, msg *jsonrpcMessage) *jsonrpcMessage {
	b := g.filters
	if kind != filterMake {
		resp := h.handleCallUnguarded(cp, msg)
		var ids []ID
		if resp.Error == nil && json.Unmarshal(msg.Params, &ids) == nil && len(ids) > 0 {
			if kind == filterPoll {
				b.polled(ids[0])
			} else {
				b.leave(ids[0])
			}
		}
		return resp
	}

	callb := h.callback(msg.Method)
	if callb == nil {
		return h.handleCallUnguarded(cp, msg)
	}
	owner, ok := callb.rcvr.Interface().(filterOwner)
	if !ok {
		return h.handleCallUnguarded(cp, msg) // a fork's filters, which the guard cannot see
	}
	filters, _ := owner.PollingFilters()
	if err := b.reserve(client, !client.perConn()); err != nil {
		if !g.cfg.DryRun {
			return msg.errorResponse(err)
		}
		return h.handleCallUnguarded(cp, msg)
	}
	kept, err := g.keep(client, msg)
	if err != nil {
		b.sweep() // those that have expired keep nothing
		if kept, err = g.keep(client, msg); err != nil {
			b.unreserve(client)
			return msg.errorResponse(err)
		}
	}
	resp := h.handleCallUnguarded(cp, msg)
	var id ID
	if resp.Error != nil || json.Unmarshal(resp.Result, &id) != nil {
		kept.close()
		b.unreserve(client)
		return resp
	}
	b.enter(id, client, filters)
	b.keep(id, kept)
	if !g.cfg.DryRun {
		filters.Limit(id, client, FilterLimits{Bytes: g.cfg.Filter.Bytes, TotalBytes: g.cfg.Filter.TotalBytes})
	}
	return resp
}
