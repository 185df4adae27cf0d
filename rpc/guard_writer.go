// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

// outboxWriter sends what waits in an outbox. There is at most one at work; which
// goroutine runs it changes.
type outboxWriter struct {
	o     *outbox
	batch *frameBatch

	// work is what the current batch consists of. Only the last item may be too
	// large for one batch: next is the first of its results not sent yet.
	work []outboxItem
	next int
}

// run sends until nothing waits or, if own is set, until own is over: then another
// goroutine goes on, since the caller of a reply must not work for others. The
// outbox's writing flag is set when it is called.
func (w *outboxWriter) run(own *outboxWait) {
	o := w.o
	for {
		o.mu.Lock()
		switch {
		case o.err != nil:
			goodbye := o.goodbye
			w.settleLocked(len(w.work), o.err)
			o.mu.Unlock()
			w.end(goodbye)
			return
		case own != nil && own.over && (len(w.work) > 0 || o.queue.len() > 0 || o.controlWaits()):
			o.mu.Unlock()
			go w.run(nil)
			return
		}
		w.collectLocked()
		if w.batch.size == 0 && len(w.work) == 0 {
			o.writing = false
			o.mu.Unlock()
			w.batch.recycle()
			return
		}
		o.mu.Unlock()

		whole := w.encode()
		err := o.conn.send(w.batch)
		w.batch.reset()

		o.mu.Lock()
		if err != nil {
			w.failAndUnlock(err)
			return
		}
		o.sent++
		w.settleLocked(whole, nil)
		o.mu.Unlock()
	}
}

// collectLocked puts control frames into the batch and takes the items that follow
// off the queue, about as many as fit.
func (w *outboxWriter) collectLocked() {
	o := w.o
	for kind, frame := range o.control {
		if frame != nil {
			w.batch.raw(frame)
			o.control[kind] = nil
		}
	}
	var size int64
	if len(w.work) > 0 {
		rest := &w.work[0]
		if rest.sub.state == subOver {
			// Nobody wants the rest of the event: it was unsubscribed, or dropped
			// because of what waited behind.
			rest.cancelLocked(errSubscriptionOver)
			w.work, w.next = w.work[:0], 0
		} else {
			for _, result := range rest.event.results[w.next:] {
				size += int64(cap(result)) + notificationOverhead
				if size >= batchBytes {
					return
				}
			}
		}
	}
	for size < batchBytes && o.queue.len() > 0 {
		item := o.queue.pop()
		if item.empty() {
			continue
		}
		if item.event != nil {
			item.sub.removeLocked(item)
		}
		size += item.size()
		w.work = append(w.work, item)
	}
}

// encode fills the batch from the items at hand and returns how many of them it
// completes: all, or all but the last.
func (w *outboxWriter) encode() (whole int) {
	for i := range w.work {
		item := &w.work[i]
		switch {
		case item.event != nil:
			results := item.event.results[w.next:]
			var buf [192]byte
			head := appendNotificationHead(buf[:0], item.sub.namespace, item.sub.id)
			for len(results) > 0 {
				if i == len(w.work)-1 && w.batch.size >= batchBytes {
					w.next = len(item.event.results) - len(results)
					return i
				}
				w.batch.message(head, results[0], notificationTail)
				results = results[1:]
			}
			w.next = 0
		case item.msg != nil:
			w.batch.reply(item.msg)
		case item.batch != nil:
			w.batch.replyBatch(item.batch)
		default:
			w.batch.message(item.notice, nil, "")
		}
	}
	return len(w.work)
}

// settleLocked ends the first n items at hand.
func (w *outboxWriter) settleLocked(n int, err error) {
	for i := range w.work[:n] {
		item := &w.work[i]
		if err == nil && item.event != nil && item.event.block > 0 {
			item.sub.written = item.event.block
		}
		item.wait.settleLocked(err)
	}
	rest := copy(w.work, w.work[n:])
	clear(w.work[rest:])
	w.work = w.work[:rest]
}

// failAndUnlock gives the connection up after a send failed. The subscriptions
// whose events were on their way have lost them.
func (w *outboxWriter) failAndUnlock(err error) {
	o := w.o
	var lost []*clientNotifier
	if o.err == nil {
		for _, item := range w.work {
			if item.event != nil && item.sub.state == subLive {
				lost = append(lost, item.sub)
				item.sub.endLocked()
			}
		}
	}
	w.settleLocked(len(w.work), err)
	o.mu.Unlock()
	w.end(nil)
	o.fail(err)
	for _, s := range lost {
		o.events.dropped(s, dropReport{Reason: dropWrite, LastBlock: s.written})
	}
}

// end is the end of the connection's last writer.
func (w *outboxWriter) end(goodbye []byte) {
	if goodbye != nil {
		w.batch.reset()
		w.batch.raw(goodbye)
		w.o.conn.send(w.batch) // the connection is given up either way
	}
	w.batch.recycle()
	w.o.fail(errOutboxClosed)
}

// size estimates the bytes that an item takes in a batch.
func (item *outboxItem) size() int64 {
	const envelope = 64
	switch {
	case item.event != nil:
		return item.event.size
	case item.msg != nil:
		return int64(envelope + item.msg.resultSize() + item.msg.errorSize() + len(item.msg.Params))
	}
	size := int64(envelope + len(item.notice))
	for _, msg := range item.batch {
		size += int64(envelope + len(msg.Result) + msg.errorSize())
	}
	return size
}

func (item *outboxItem) empty() bool {
	return item.event == nil && item.msg == nil && item.batch == nil && item.notice == nil
}

// itemQueue is a queue of items in a slice whose front moves. An empty one holds no
// memory.
type itemQueue struct {
	items []outboxItem
	front int
}

func (q *itemQueue) len() int { return len(q.items) - q.front }

func (q *itemQueue) push(item outboxItem) {
	if q.front > 16 && q.front > len(q.items)/2 {
		n := copy(q.items, q.items[q.front:])
		clear(q.items[n:])
		q.items, q.front = q.items[:n], 0
	}
	q.items = append(q.items, item)
}

func (q *itemQueue) pop() outboxItem {
	item := q.items[q.front]
	q.items[q.front] = outboxItem{}
	if q.front++; q.front == len(q.items) {
		*q = itemQueue{}
	}
	return item
}

func (q *itemQueue) each(f func(*outboxItem)) {
	for i := q.front; i < len(q.items); i++ {
		f(&q.items[i])
	}
}
