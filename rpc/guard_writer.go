// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

// outboxWriter sends what waits in an outbox. There is at most one at work; which
// goroutine runs it changes.
type outboxWriter struct {
	o     *outbox
	batch *frameBatch // nil while it stands in a flusher's queue

	// work is what the current batch consists of. Only the last item may be too
	// large for one batch: next is the first of its results not sent yet.
	work []outboxItem
	next int

	filled bool // the batch is to be sent, or what is left of it
	whole  int  // items of work that are complete once it has been
}

// run sends until nothing waits or, if own is set, until own is over: then another
// goroutine goes on, since the caller of a reply must not work for others. The
// outbox's writing flag is set when it is called.
func (w *outboxWriter) run(own *outboxWait) {
	o := w.o
	if w.batch == nil {
		w.batch = newFrameBatch(o.framing)
	}
	for {
		o.mu.Lock()
		switch {
		case w.filled: // by a worker, and begun: as a send in progress, it may end
		case o.err != nil:
			goodbye := o.goodbye
			w.settleLocked(len(w.work), o.err)
			o.mu.Unlock()
			w.end(goodbye)
			return
		case own != nil && own.over && w.waitsLocked():
			o.mu.Unlock()
			go w.run(nil)
			return
		case !w.collectLocked():
			o.writing = false
			o.mu.Unlock()
			w.batch.recycle()
			return
		}
		o.mu.Unlock()

		if !w.filled {
			w.encode()
		}
		err := o.conn.send(w.batch)

		o.mu.Lock()
		if err != nil {
			w.failAndUnlock(err)
			return
		}
		w.sentLocked()
		o.mu.Unlock()
	}
}

// waitsLocked reports whether there is something to send.
func (w *outboxWriter) waitsLocked() bool {
	return len(w.work) > 0 || w.o.queue.len() > 0 || w.o.controlWaits()
}

// sentLocked says that the batch has left.
func (w *outboxWriter) sentLocked() {
	w.filled = false
	w.batch.reset()
	w.o.sent++
	w.settleLocked(w.whole, nil)
}

// collectLocked puts control frames into the batch and takes the items that follow
// off the queue, about as many as fit. It reports whether there is anything.
func (w *outboxWriter) collectLocked() bool {
	o := w.o
	for kind, frame := range o.control {
		if frame != nil {
			w.batch.raw(frame)
			o.control[kind] = nil
		}
	}
	w.collectItemsLocked()
	return w.batch.size > 0 || len(w.work) > 0
}

func (w *outboxWriter) collectItemsLocked() {
	o := w.o
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

// encode fills the batch from the items at hand. It completes all of them, or all
// but the last.
func (w *outboxWriter) encode() {
	w.filled, w.whole = true, len(w.work)
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
					w.whole = i
					return
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
	o.unlock()
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
