// SPDX-License-Identifier: LGPL-3.0-or-later

package filters

import (
	"context"

	"github.com/ethereum/go-ethereum/core/filtermaps"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/rpc"
)

// A log query holds what it has found until it ends, over any number of blocks.
// What it finds is counted by the call's meter as it is found, and the query stops
// when that does not fit: at reply.max, or when all replies together are too many.

// blockLogs stands in front of upstream's function of that name.
func (f *Filter) blockLogs(ctx context.Context, header *types.Header) ([]*types.Log, error) {
	return meteredLoad(ctx, func() ([]*types.Log, error) { return f.blockLogsUnguarded(ctx, header) })
}

// indexedLogs stands in front of upstream's function of that name. The search in
// the index fetches the logs one by one, from several goroutines.
func (f *Filter) indexedLogs(ctx context.Context, mb filtermaps.MatcherBackend, begin, end uint64) ([]*types.Log, error) {
	if meter := rpc.BuildMeterFromContext(ctx); meter != nil {
		mb = &meteredMatcher{mb, meter}
	}
	return f.indexedLogsUnguarded(ctx, mb, begin, end)
}

// meteredMatcher counts the logs that a search fetches.
type meteredMatcher struct {
	filtermaps.MatcherBackend
	meter *rpc.BuildMeter
}

// GetLogByLvIndex implements filtermaps.MatcherBackend.
func (m *meteredMatcher) GetLogByLvIndex(ctx context.Context, index uint64) (*types.Log, error) {
	log, err := m.MatcherBackend.GetLogByLvIndex(ctx, index)
	if err != nil || log == nil {
		return log, err
	}
	if err := m.meter.Add(logsSize([]*types.Log{log})); err != nil {
		return nil, err
	}
	return log, nil
}
