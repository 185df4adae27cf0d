// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

// fairQueue holds the calls that wait for a permit: round-robin over clients,
// first come first served within one client and class.
//
// # Model
//
// Each client has one FIFO a class, called a flow. For each class the flows that
// hold calls stand in a ring, and each carries the turn in which its client was
// last served. Whoever takes a call asks for the flow with the lowest turn among
// the classes it can serve; its client then goes to the back of every ring it
// stands in. So a client is served once a round however many calls and classes
// it waits with, and a call that waits for something scarce does not keep its
// client's other calls waiting behind it.
//
// # Invariants
//
//   - Flows of a ring stand in ascending order of turn.
//   - A client waits at most one call of each other waiting client longer than it
//     would alone, for each of its own calls in front (TestGateModel).
//   - With one client and one class it is a plain FIFO.
//
// All operations cost O(1) but newest, which costs O(classes). There is no lock;
// that of the gate guards it. The zero value is ready for use.
//
// # Worked example
//
// A waits with a1 a2 a3, then B with b1, then C with c1 c2. They are served
// a1 b1 c1 a2 c2 a3.
type fairQueue struct {
	rings [numClasses]flowRing
	turn  uint64
	total int
}

// flowRing holds the flows of one class, the next one to be served first.
type flowRing struct {
	flows linkedList[*flow]
	calls int
}

// flow is the FIFO of one client's calls of one class.
type flow struct {
	client *gateClient
	calls  linkedList[*gateCall]
	turn   uint64
	node   listNode[*flow] // in the ring, if it has calls
}

// push appends c to its client's flow.
func (q *fairQueue) push(c *gateCall) {
	f := &c.client.flows[c.class]
	ring := &q.rings[c.class]
	f.calls.pushBack(&c.node)
	ring.calls++
	q.total++
	if f.calls.n == 1 {
		q.turn++
		ring.append(f, q.turn)
	}
}

// remove takes c out, wherever it stands, without its client losing a turn.
func (q *fairQueue) remove(c *gateCall) {
	f := &c.client.flows[c.class]
	ring := &q.rings[c.class]
	f.calls.remove(&c.node)
	ring.calls--
	q.total--
	if f.calls.n == 0 {
		ring.flows.remove(&f.node)
	}
}

// take removes c to serve it and sends its client to the back.
func (q *fairQueue) take(c *gateCall) {
	q.remove(c)
	q.turn++
	for class := range q.rings {
		if f := &c.client.flows[class]; f.calls.n > 0 {
			q.rings[class].flows.remove(&f.node)
			q.rings[class].append(f, q.turn)
		}
	}
}

// newest returns the last call that client queued, nil if none waits.
func (q *fairQueue) newest(client *gateClient) *gateCall {
	var newest *gateCall
	for class := range client.flows {
		if c := client.flows[class].calls.back(); c != nil && (newest == nil || c.seq > newest.seq) {
			newest = c
		}
	}
	return newest
}

func (r *flowRing) append(f *flow, turn uint64) {
	f.turn = turn
	r.flows.pushBack(&f.node)
}
