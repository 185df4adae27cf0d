// SPDX-License-Identifier: LGPL-3.0-or-later

package filters

import (
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/rpc"
)

const (
	// recentBytes bounds the encoded logs that are kept for groups still to come.
	recentBytes = 8 << 20

	// recentTime is how long they are kept.
	recentTime = 2 * time.Second
)

// logKey says that two logs are the same. It holds a pointer to what the node
// produced, which it does not change any more, so equal pointers are equal values.
type logKey struct {
	log     *types.Log
	removed bool
}

// logCache encodes logs once for all subscribers, whichever of them each one wants:
// those that want the same ones share the event (see feedGroups), the others its
// parts. It keeps encodings for a moment; whoever comes too late encodes for itself.
// The zero value is ready for use.
//
// Example: a block with 100 logs of 600 bytes, 900 subscribers who want all of them
// and 100 who want the 10 of one contract each. The 100 logs are encoded once; there
// are 101 events. Those of the second kind are made of encodings that exist.
type logCache struct {
	mu    sync.Mutex
	logs  map[logKey]json.RawMessage
	bytes int
	timer *time.Timer
}

// event returns the event of logs, which are those of one block, or what a reorg
// removed from one.
func (c *logCache) event(logs []*types.Log) (*rpc.Event, error) {
	results := make([]json.RawMessage, len(logs))
	for i, log := range logs {
		var err error
		if results[i], err = c.encode(log); err != nil {
			return nil, err
		}
	}
	block := uint64(0)
	if len(logs) > 0 {
		block = logs[0].BlockNumber
	}
	return rpc.NewEvent(block, results), nil
}

// encode returns the encoding of one log.
func (c *logCache) encode(log *types.Log) (json.RawMessage, error) {
	key := logKey{log, log.Removed}
	c.mu.Lock()
	result, ok := c.logs[key]
	c.mu.Unlock()
	if ok {
		return result, nil
	}
	result, err := rpc.EncodeResult(log)
	if err != nil {
		return nil, err
	}
	result = slices.Clip(result)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.logs == nil || c.bytes > recentBytes {
		c.logs, c.bytes = make(map[logKey]json.RawMessage), 0
	}
	c.logs[key] = result
	c.bytes += cap(result)
	if c.timer == nil {
		c.timer = time.AfterFunc(recentTime, c.forget)
	} else {
		c.timer.Reset(recentTime)
	}
	return result, nil
}

// forget lets go of everything, so that an encoding lives no longer than the queues
// that hold it.
func (c *logCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.logs, c.bytes = nil, 0
}

// encodeEvent makes one event of values.
func encodeEvent[E any](block uint64, values []E) (*rpc.Event, error) {
	results := make([]json.RawMessage, len(values))
	for i := range values {
		result, err := rpc.EncodeResult(values[i])
		if err != nil {
			return nil, err
		}
		results[i] = slices.Clip(result)
	}
	return rpc.NewEvent(block, results), nil
}
