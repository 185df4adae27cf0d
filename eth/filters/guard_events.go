// SPDX-License-Identifier: LGPL-3.0-or-later

package filters

import (
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/rpc"
)

const (
	// recentEvents is how many events are kept for the subscribers still to come.
	// The goroutines of a thousand subscribers get to an event one after another,
	// and the next event may be there before the last of them has run.
	recentEvents = 4

	// recentBytes bounds what is kept besides the newest event.
	recentBytes = 8 << 20

	// recentTime is how long the newest events are kept.
	recentTime = 2 * time.Second
)

// Keys say that two values are the same event. They hold pointers to what the node
// produced, which it does not change any more, so equal pointers are equal values.
type (
	headKey    struct{ header *types.Header }
	receiptKey struct {
		first *types.Receipt
		n     int
	}
	txKey struct {
		first  *types.Transaction // of the announcement
		n      int
		head   common.Hash // that the encoding depends on
		hashes bool
	}
	logsKey []*types.Log // that one subscriber wants of a block
	logKey  struct {
		log     *types.Log
		removed bool
	}
)

// sameKey compares keys.
func sameKey(a, b any) bool {
	if logs, ok := a.(logsKey); ok {
		others, ok := b.(logsKey)
		return ok && slices.Equal(logs, others)
	}
	if _, ok := b.(logsKey); ok {
		return false
	}
	return a == b
}

// eventCache encodes the events of one kind once for all subscribers. It keeps the
// latest few, for a moment; whoever comes too late encodes for itself. Whoever
// comes while an event is being encoded waits for that, which costs what encoding
// it would. The zero value is ready for use.
//
// Example: a block with 100 logs of 600 bytes, 900 subscribers who want all of them
// and 100 who want the 10 of one contract each. The 100 logs are encoded once; there
// are 101 events, of which the latest 4 are found again. A subscriber of the second
// kind makes its event anew, from encodings that exist.
type eventCache struct {
	mu     sync.Mutex
	recent []*cachedEvent // the newest last
	timer  *time.Timer
}

type cachedEvent struct {
	key  any
	once sync.Once
	ev   *rpc.Event
	err  error
	size atomic.Int64 // once encoded
}

// get returns the event of key, encoding it unless that was done already. A nil key
// is no event's but the caller's own.
func (c *eventCache) get(key any, encode func() (*rpc.Event, error)) (*rpc.Event, error) {
	if key == nil {
		return encode()
	}
	entry := c.entry(key)
	entry.once.Do(func() {
		if entry.ev, entry.err = encode(); entry.err == nil {
			entry.size.Store(entry.ev.Size())
		}
	})
	return entry.ev, entry.err
}

func (c *eventCache) entry(key any) *cachedEvent {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.recent) - 1; i >= 0; i-- {
		if sameKey(c.recent[i].key, key) {
			return c.recent[i]
		}
	}
	var kept int64
	for i := len(c.recent) - 1; i >= 0; i-- {
		kept += c.recent[i].size.Load()
		if len(c.recent)-i >= recentEvents || kept > recentBytes {
			c.recent = slices.Delete(c.recent, 0, i+1)
			break
		}
	}
	entry := &cachedEvent{key: key}
	c.recent = append(c.recent, entry)
	if c.timer == nil {
		c.timer = time.AfterFunc(recentTime, c.forget)
	} else {
		c.timer.Reset(recentTime)
	}
	return entry
}

// forget lets go of everything, so that an event lives no longer than the queues
// that hold it.
func (c *eventCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recent = nil
}

// logCache encodes logs once for all subscribers, whichever of them each one wants.
// Subscribers that want the same logs of a block share the event too.
type logCache struct {
	events eventCache

	mu    sync.Mutex
	logs  map[logKey]json.RawMessage
	bytes int
	timer *time.Timer
}

// get returns the event of logs, which are those of one block, or what a reorg
// removed from one.
func (c *logCache) get(logs []*types.Log) (*rpc.Event, error) {
	if len(logs) == 0 {
		return rpc.NewEvent(0, nil), nil
	}
	return c.events.get(logsKey(logs), func() (*rpc.Event, error) {
		results := make([]json.RawMessage, len(logs))
		for i, log := range logs {
			var err error
			if results[i], err = c.encode(log); err != nil {
				return nil, err
			}
		}
		return rpc.NewEvent(logs[0].BlockNumber, results), nil
	})
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

func (c *logCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.logs, c.bytes = nil, 0
}
