// SPDX-License-Identifier: LGPL-3.0-or-later

package filters

import (
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/metrics"
	"github.com/ethereum/go-ethereum/rpc"
)

var (
	filterQueuedGauge    = metrics.NewRegisteredGauge("rpc/filter/queued", nil) // bytes
	filterQueuedMaxGauge = metrics.NewRegisteredGauge("rpc/filter/queued/max", nil)
	filterDroppedGauge   = metrics.NewRegisteredGauge("rpc/filter/dropped", nil)
)

// guardFilters is what a FilterAPI keeps for the guard: what subscribers share, and
// how much waits in polling filters. The zero value is ready for use, and without a
// guard stays unused.
type guardFilters struct {
	heads       feedGroups[*types.Header]
	logs        feedGroups[[]*types.Log]
	encodedLogs logCache
	txs         feedGroups[[]*types.Transaction]

	// FilterAPI.filtersMu guards the rest.
	limits  rpc.FilterLimits // zero: unlimited
	polling map[rpc.ID]*pollingFilter
	queued  int64 // bytes in all filters that are limited
}

// perAPI holds a T of each FilterAPI. Upstream's type ends in another field from
// release to release, so there is none of ours in it. An API is never let go of: the
// loop that removes its idle filters runs for ever.
type perAPI[T any] struct{ values sync.Map }

func (p *perAPI[T]) of(api *FilterAPI) *T {
	v, ok := p.values.Load(api)
	if !ok {
		v, _ = p.values.LoadOrStore(api, new(T))
	}
	return v.(*T)
}

var guards perAPI[guardFilters]

func (api *FilterAPI) guard() *guardFilters { return guards.of(api) }

// pollingFilter is what is known of one filter besides upstream's own record. It is
// made when the guard learns of the filter, or before, when the filter's first event
// comes before that.
//
// A filter that its client uninstalls leaves with that call. One that expires is
// noticed at the guard's next sweep, within seconds: there is no one place where
// upstream removes filters.
type pollingFilter struct {
	client  any // opaque: comparable, equal for filters of one client; nil: not known, or trusted
	limited bool
	polled  time.Time
	queued  int64
}

// PollingFilters gives the guard access to the filters. (A method with two results
// of which the second is no error is none of the API's.)
func (api *FilterAPI) PollingFilters() (rpc.PollingFilters, bool) {
	return (*pollingGuard)(api), true
}

// pollingGuard is a FilterAPI as the guard sees it.
type pollingGuard FilterAPI

// Limit puts a new filter under limits. It is called when the call that made the
// filter has returned, which can be after its first events.
func (g *pollingGuard) Limit(id rpc.ID, client any, limits rpc.FilterLimits) {
	api := (*FilterAPI)(g)
	api.filtersMu.Lock()
	defer api.filtersMu.Unlock()
	f, ok := api.filters[id]
	if !ok {
		return
	}
	if api.guard().polling == nil {
		api.guard().polling = make(map[rpc.ID]*pollingFilter)
	}
	api.guard().limits = limits
	p := &pollingFilter{client: client, limited: true, polled: time.Now()}
	api.guard().polling[id] = p
	api.guard().addLocked(p, queuedSize(f))
}

// Alive reports which of the given filters exist.
func (g *pollingGuard) Alive(ids []rpc.ID) []bool {
	api := (*FilterAPI)(g)
	alive := make([]bool, len(ids))
	api.filtersMu.Lock()
	defer api.filtersMu.Unlock()
	for i, id := range ids {
		_, alive[i] = api.filters[id]
	}
	api.guardSweepLocked()
	return alive
}

// Uninstall removes a filter.
func (g *pollingGuard) Uninstall(id rpc.ID) {
	(*FilterAPI)(g).UninstallFilter(id)
	filterDroppedGauge.Inc(1)
}

// Forget takes a filter off the books that has been uninstalled.
func (g *pollingGuard) Forget(id rpc.ID) {
	api := (*FilterAPI)(g)
	api.filtersMu.Lock()
	defer api.filtersMu.Unlock()
	books := api.guard()
	if p := books.polling[id]; p != nil {
		books.addLocked(p, -p.queued)
		delete(books.polling, id)
	}
}

// guardQueued notes that bytes were queued in a filter. It uninstalls the filter if
// it holds too much, or the one that weighs most if all of them do; the next poll of
// that one is told "filter not found". The caller holds filtersMu.
func (api *FilterAPI) guardQueued(id rpc.ID, bytes int64) {
	g := api.guard()
	p := g.polling[id]
	if p == nil {
		return // no guard, or not known to it yet
	}
	g.addLocked(p, bytes)
	if p.queued > g.limits.Bytes {
		api.guardUninstallLocked(id)
	}
	if g.queued > g.limits.TotalBytes {
		api.guardSweepLocked()
	}
	for g.queued > g.limits.TotalBytes {
		api.guardUninstallLocked(g.heaviestLocked(id))
	}
}

// guardUninstallLocked removes a filter that overflowed. Unsubscribing waits for the
// event loop, which may be waiting for a filter that waits for filtersMu, so it is
// left to a goroutine of its own.
func (api *FilterAPI) guardUninstallLocked(id rpc.ID) {
	g := api.guard()
	g.addLocked(g.polling[id], -g.polling[id].queued)
	delete(g.polling, id)
	if f, ok := api.filters[id]; ok {
		delete(api.filters, id)
		go f.s.Unsubscribe()
		filterDroppedGauge.Inc(1)
	}
}

// guardSweepLocked forgets filters that upstream has removed.
func (api *FilterAPI) guardSweepLocked() {
	for id, p := range api.guard().polling {
		if _, ok := api.filters[id]; !ok {
			api.guard().addLocked(p, -p.queued)
			delete(api.guard().polling, id)
		}
	}
}

// heaviestLocked names the filter that goes when all together hold too much: of the
// client that holds most, the one not polled for longest. newcomer is the filter
// whose event did not fit; its client must not gain by the removal, so it loses
// itself if it would hold more than the other client keeps.
func (g *guardFilters) heaviestLocked(newcomer rpc.ID) rpc.ID {
	held := make(map[any]int64)
	var greediest any
	for _, p := range g.polling {
		held[p.client] += p.queued
	}
	for client, bytes := range held {
		if bytes > held[greediest] {
			greediest = client
		}
	}
	oldest := func(client any) (oldest rpc.ID) {
		for id, p := range g.polling {
			if p.client == client && p.queued > 0 && (oldest == "" || p.polled.Before(g.polling[oldest].polled)) {
				oldest = id
			}
		}
		return oldest
	}
	loser := oldest(greediest)
	if p := g.polling[newcomer]; p != nil && held[p.client] > held[greediest]-g.polling[loser].queued {
		return oldest(p.client)
	}
	return loser
}

func (g *guardFilters) addLocked(p *pollingFilter, bytes int64) {
	p.queued += bytes
	g.queued += bytes
	filterQueuedGauge.Inc(bytes)
	filterQueuedMaxGauge.UpdateIfGt(g.queued)
}

// GetFilterChanges returns what was queued in a filter since the last call.
func (api *FilterAPI) GetFilterChanges(id rpc.ID) (any, error) {
	changes, err := api.getFilterChangesUnguarded(id)
	api.filtersMu.Lock()
	defer api.filtersMu.Unlock()
	if p := api.guard().polling[id]; p != nil {
		p.polled = time.Now()
		left := int64(0)
		if f, ok := api.filters[id]; ok {
			left = queuedSize(f) // an event may have come in between
		}
		api.guard().addLocked(p, left-p.queued)
	}
	return changes, err
}

func queuedSize(f *filter) int64 {
	return int64(len(f.hashes)*hashSize) + txsSize(f.txs) + logsSize(f.logs)
}
