// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/metrics"
)

// replyMetrics publishes the books of replies, which count for themselves: metric
// objects are off by default.
type replyMetrics struct {
	inUse, high, limit         metricGauge // bytes
	refused, tooLarge, stalled metricGauge // counts
}

var publishReplies struct {
	once sync.Once
	mu   sync.Mutex
	of   []*guardReplies
}

// publish has the metrics of r kept up to date from now on, whenever metrics are on.
// The guards of one process are added up.
func (r *guardReplies) publish() {
	p := &publishReplies
	p.mu.Lock()
	p.of = append(p.of, r)
	p.mu.Unlock()
	p.once.Do(func() {
		m := newReplyMetrics(metrics.DefaultRegistry)
		go func() {
			for range time.Tick(metricsInterval) {
				if !metricsEnabled() {
					continue
				}
				p.mu.Lock()
				m.update(p.of)
				p.mu.Unlock()
			}
		}()
	})
}

func newReplyMetrics(r metrics.Registry) *replyMetrics {
	gauge := func(name string) metricGauge { return metrics.GetOrRegisterGauge("rpc/reply/"+name, r) }
	return &replyMetrics{
		inUse: gauge("inuse"), high: gauge("inuse/high"), limit: gauge("limit"),
		refused: gauge("refused"), tooLarge: gauge("toolarge"), stalled: gauge("stalled"),
	}
}

func (m *replyMetrics) update(all []*guardReplies) {
	var sum replyStatus
	for _, r := range all {
		s := r.status()
		sum.InUse += s.InUse
		sum.High += s.High
		sum.Limit += s.Limit
		sum.Refused += s.Refused
		sum.TooLarge += s.TooLarge
		sum.Stalled += s.Stalled
	}
	m.inUse.Update(sum.InUse)
	m.high.Update(sum.High)
	m.limit.Update(sum.Limit)
	m.refused.Update(int64(sum.Refused))
	m.tooLarge.Update(int64(sum.TooLarge))
	m.stalled.Update(int64(sum.Stalled))
}

// replyStatus is what the replies hold at one moment, in bytes, and what became of
// those that did not fit, in counts.
type replyStatus struct {
	InUse    int64  `json:"inUse"`
	Large    int64  `json:"large"` // of InUse, in replies above 64 KiB
	High     int64  `json:"high"`
	Limit    int64  `json:"limit"`
	Max      int64  `json:"max"`      // of one reply
	Refused  uint64 `json:"refused"`  // calls and replies answered -32005
	TooLarge uint64 `json:"tooLarge"` // replies answered -32003
	Evicted  uint64 `json:"evicted"`  // displaced by others with a smaller share
	Stalled  uint64 `json:"stalled"`  // connections cut because nobody took their replies
}

// status reads the books of replies.
func (r *guardReplies) status() replyStatus {
	b := r.budget.stats()
	return replyStatus{
		InUse: b.InUse, Large: b.Large, High: b.High, Limit: b.Limit, Max: r.max,
		Refused: r.refused.Load(), TooLarge: r.tooLarge.Load(), Evicted: b.Evicted, Stalled: r.stall.stalled(),
	}
}
