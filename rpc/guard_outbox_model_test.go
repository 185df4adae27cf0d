// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"errors"
	"fmt"
	"math/rand"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// outboxModel is the outbox as one would explain it: a list of what was queued, in
// order, from the front of which messages appear on the wire. It learns from the
// wire which entries have begun, and decides everything else by itself.
type outboxModel struct {
	limits subLimits
	queue  []*modelEntry
	subs   map[ID]*modelSub
	over   bool
	drops  int
	seen   int // messages on the wire that were accounted for
}

type modelEntry struct {
	sub     *modelSub // nil: a reply or a notice
	msgs    []string
	begun   bool
	counted bool
	size    int64
}

type modelSub struct {
	id             ID
	active, doomed bool
	over           bool
	held           []*modelEntry
}

func (m *outboxModel) waiting(s *modelSub) (items, events int, bytes int64) {
	for _, e := range append(append([]*modelEntry(nil), m.queue...), s.held...) {
		if e.sub == s && !e.begun {
			items++
			bytes += e.size
			if e.counted {
				events++
			}
		}
	}
	return
}

func (m *outboxModel) connBytes() (bytes int64) {
	for _, s := range m.subs {
		_, _, n := m.waiting(s)
		bytes += n
	}
	return bytes
}

// notify says whether the event is accepted.
func (m *outboxModel) notify(s *modelSub, e *modelEntry) bool {
	if m.over || s.over || s.doomed {
		return false
	}
	items, events, bytes := m.waiting(s)
	fits := items == 0 && m.connBytes()/burstShare <= m.limits.connBytes ||
		(!e.counted || events < m.limits.events) &&
			bytes+e.size <= m.limits.bytes &&
			m.connBytes()+e.size <= m.limits.connBytes
	switch {
	case fits && s.active:
		m.queue = append(m.queue, e)
	case fits:
		s.held = append(s.held, e)
	case s.active:
		m.drop(s)
	default:
		s.doomed, s.held = true, nil
	}
	return fits
}

func (m *outboxModel) drop(s *modelSub) {
	m.drops++
	m.end(s)
	if m.limits.notice {
		m.queue = append(m.queue, &modelEntry{msgs: []string{"dropped " + string(s.id)}})
	} else {
		m.over = true
	}
}

// end forgets what waits; of what has begun, the messages not on the wire yet.
func (m *outboxModel) end(s *modelSub) {
	s.over, s.held = true, nil
	var rest []*modelEntry
	for _, e := range m.queue {
		if e.sub != s {
			rest = append(rest, e)
		} else if e.begun {
			e.msgs = nil
		}
	}
	m.queue = rest
}

func (m *outboxModel) activate(s *modelSub) {
	switch {
	case s.over || s.active || m.over:
	case s.doomed:
		m.drop(s)
	default:
		s.active = true
		m.queue = append(m.queue, s.held...)
		s.held = nil
	}
}

// wire compares what appeared on the wire with the front of the queue.
func (m *outboxModel) wire(msgs []string) error {
	if m.over && len(msgs) < m.seen {
		return nil // the send in progress failed
	}
	for _, got := range msgs[m.seen:] {
		m.seen++
		for len(m.queue) > 0 && len(m.queue[0].msgs) == 0 {
			m.queue = m.queue[1:]
		}
		if strings.HasPrefix(got, "8:") {
			if !m.over {
				return errors.New("close frame out of turn")
			}
			continue
		}
		if len(m.queue) == 0 {
			return fmt.Errorf("unexpected %s", got)
		}
		e := m.queue[0]
		want := e.msgs[0]
		if strings.HasPrefix(want, "dropped ") {
			want = `"subscription":"` + strings.TrimPrefix(want, "dropped ") + `","error":{"code":-32014`
			if !strings.Contains(got, want) {
				return fmt.Errorf("got %.200s, want the notice %s", got, want)
			}
		} else if got != want {
			return fmt.Errorf("got %.200s, want %.200s", got, want)
		}
		e.begun, e.msgs = true, e.msgs[1:]
	}
	return nil
}

// onWire returns what has been written and what the send in progress carries.
func (c *fakeConn) onWire(f framing) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	msgs, err := parseMessages(f, c.written[c.parsed:])
	if err != nil {
		panic(err)
	}
	c.msgs, c.parsed = append(c.msgs, msgs...), len(c.written)
	if msgs, err = parseMessages(f, c.current); err != nil {
		panic(err)
	}
	return append(c.msgs[:len(c.msgs):len(c.msgs)], msgs...)
}

// TestGuardOutboxModel runs random operations against the model: delivery is
// complete and in order, nothing leaves before the subscribe reply or after the
// unsubscribe reply, every drop happens when it must and once, and in the end all
// books are at 0.
func TestGuardOutboxModel(t *testing.T) {
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	rounds := 60
	if testing.Short() {
		rounds = 20
	}
	for i := range rounds {
		r := rand.New(rand.NewSource(seed + int64(i)))
		synctest.Test(t, func(t *testing.T) { runOutboxModel(t, r, seed+int64(i)) })
		if t.Failed() {
			return
		}
	}
}

func runOutboxModel(t *testing.T, r *rand.Rand, seed int64) {
	limits := subLimits{events: 1 + r.Intn(6), bytes: 12000, connBytes: 20000, notice: r.Intn(2) == 0}
	if r.Intn(4) == 0 {
		limits.bytes, limits.connBytes = 300000, 500000 // several batches wait
	}
	var (
		f    = framing(r.Intn(2))
		conn = newFakeConn()
		o    = newTestOutbox(t, conn, f, limits)
		m    = &outboxModel{limits: limits, subs: make(map[ID]*modelSub)}
		real = make(map[ID]*clientNotifier)
		ids  []ID
		errs = make(chan error, 1000)
		want int // replies that must return
		next int
		text = func() string {
			next++
			return fmt.Sprint(next, strings.Repeat("x", []int{0, 0, 10, 10, 100, 500, 1000, 1000, 5000, 5000, 5000, 70000}[r.Intn(12)]))
		}
	)
	if r.Intn(2) == 0 {
		var err error
		o.flusher, err = newFlusher(1 + r.Intn(3))
		require.NoError(t, err)
	}
	reply := func() {
		next++
		msg := textReply(next)
		if !m.over {
			m.queue = append(m.queue, &modelEntry{msgs: []string{string(appendMessage(nil, msg))}})
		}
		want++
		go func() { errs <- o.writeReply(msg, nil) }()
	}
	for step := range 120 {
		switch op := r.Intn(20); {
		case op < 2: // subscribe
			id := ID(fmt.Sprintf("0x%x", len(ids)))
			require.True(t, o.reserve())
			s := o.newNotifier("eth")
			s.describe("logs", false)
			s.bind(id)
			ids, real[id], m.subs[id] = append(ids, id), s, &modelSub{id: id, over: m.over}

		case len(ids) == 0:

		case op < 10: // event
			id := ids[r.Intn(len(ids))]
			var texts, msgs []string
			for range 1 + r.Intn(3) {
				texts = append(texts, text())
				msgs = append(msgs, notification(id, texts[len(texts)-1]))
			}
			ev := textEvent(uint64(step), texts...)
			e := &modelEntry{sub: m.subs[id], msgs: msgs, counted: r.Intn(2) == 0, size: ev.Size()}
			err := real[id].notify(ev, e.counted)
			require.Equal(t, m.notify(m.subs[id], e), err == nil, "seed %d step %d: event of %d bytes for %s: %v", seed, step, ev.Size(), id, err)

		case op < 12: // the reply to a subscribe call, then delivery
			id := ids[r.Intn(len(ids))]
			m.activate(m.subs[id])
			real[id].activate()

		case op < 13: // unsubscribe: nothing after its reply
			id := ids[r.Intn(len(ids))]
			if !m.over && !m.subs[id].over && (m.subs[id].active || !m.subs[id].doomed) {
				m.end(m.subs[id])
			} else {
				m.subs[id].over = true
			}
			o.forget(id)
			reply()

		case op < 14:
			reply()

		case op < 19:
			conn.let(1)

		case r.Intn(10) == 0:
			conn.fail(errors.New("reset"))

		case r.Intn(20) == 0:
			o.sayGoodbye(closeFrame(1000, ""), time.Second)
			m.over = true
		}
		synctest.Wait()
		o.mu.Lock()
		dead := o.dead
		o.mu.Unlock()
		if dead {
			m.over = true
		}
		require.NoError(t, m.wire(conn.onWire(f)), "seed %d step %d", seed, step)
		if conn.failing == nil {
			require.Len(t, dropsOf(o), m.drops, "seed %d step %d", seed, step)
		}
		if !m.over {
			require.Equal(t, m.connBytes(), o.bytes, "seed %d step %d", seed, step)
		}
	}
	// Everything that may still be delivered is.
	conn.letAll()
	synctest.Wait()
	require.NoError(t, m.wire(conn.onWire(f)), "seed %d", seed)
	if !m.over {
		for _, e := range m.queue {
			require.Empty(t, e.msgs, "seed %d: not delivered", seed)
		}
	}
	for _, s := range real {
		s.cancel()
	}
	requireEmpty(t, o)
	for range want {
		<-errs // or the bubble is deadlocked: a reply that nobody answers
	}
	require.LessOrEqual(t, len(dropsOf(o)), len(ids), "seed %d: dropped twice", seed)
	seen := make(map[ID]bool)
	for _, id := range o.events.(*drops).ids {
		require.False(t, seen[id], "seed %d: %s dropped twice", seed, id)
		seen[id] = true
	}
}
