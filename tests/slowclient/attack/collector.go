// SPDX-License-Identifier: LGPL-3.0-or-later

package attack

import (
	"context"
	"math"
	"time"

	"rpcguard/tests/slowclient/rig"
)

// collector reads at a steady rate, in turns with and without promised bodies beside
// it, and compares the processor time a read takes. A pair is measured in one go, so
// that what else the machine does weighs on both halves.
func collector(r *Run) {
	open := func() (conns []*rig.H2, streams int) {
		for i := range 10 {
			h, err := rig.DialH2(r.Ctx, r.Node.HTTP, r.Attacker(i))
			if err != nil {
				continue
			}
			conns = append(conns, h)
			for range 100 {
				id, err := h.Open(bodyMax-1, false)
				if err != nil || h.Data(id, make([]byte, 63), false) != nil {
					break
				}
				streams++
			}
		}
		return conns, streams
	}
	leave := func(conns []*rig.H2) {
		for _, h := range conns {
			h.Close()
		}
	}
	half := r.Seconds(2, 3)
	var logs []float64
	for range r.Scale(1, 9) {
		alone := r.costOfReads(half)
		before := r.Node.Goroutines()
		conns, streams := open()
		r.Goroutines("streams begun", before, streams/4)
		beside := r.costOfReads(half)
		leave(conns)
		if r.Ctx.Err() != nil || !r.Node.Alive() {
			r.Break("the node ended: %v", r.Node.Err())
			return
		}
		if alone > 0 && beside > 0 {
			logs = append(logs, math.Log(beside/alone))
		}
		r.Node.Quiet(r.Ctx, 5*time.Second)
	}
	if !r.Quick {
		// What the collector is misled to shows only after a while. Those that are ended
		// come again.
		for end := time.Now().Add(25 * time.Second); time.Now().Before(end); {
			conns, _ := open()
			r.costOfReads(5 * time.Second)
			defer leave(conns)
		}
	}
	r.MemoryAtMost(bodyMemory)
	if r.Node.Pid == 0 || len(logs) == 0 {
		r.notSeen("processors")
		return
	}
	mean, half95 := interval(logs)
	r.Note("processor time a read, ratio", math.Exp(mean), "")
	if len(logs) >= 9 {
		// As without the attack: the interval reaches down to it, give or take 3 %.
		r.AtMost("ratio at least", math.Exp(mean-half95), 1.03, "")
		r.Note("ratio at most", math.Exp(mean+half95), "")
	}
}

// costOfReads makes ordinary reads from four clients at a steady rate for d and returns
// the processor time that the node used for one, in seconds.
func (r *Run) costOfReads(d time.Duration) float64 {
	ctx, cancel := context.WithTimeout(r.Ctx, d)
	defer cancel()
	call := rig.Call(1, "eth_getBlockByNumber", "latest", false)
	before, _ := rig.Look(r.Node.Pid)
	var t Tally
	Parallel(4, func(i int) {
		c := rig.NewHTTP(r.Node.HTTP, r.Attacker(200+i))
		defer c.Close()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			t.Add(outcome(c.Send(r.Ctx, call)))
		}
	})
	after, ok := rig.Look(r.Node.Pid)
	if n := t.Get("served"); ok && n > 0 {
		return (after.CPU - before.CPU).Seconds() / float64(n)
	}
	return 0
}

// interval returns the mean of v and half the width of its 95 % interval, by Student's
// t distribution.
func interval(v []float64) (mean, half float64) {
	for _, x := range v {
		mean += x / float64(len(v))
	}
	if len(v) < 2 {
		return mean, math.Inf(1)
	}
	var sq float64
	for _, x := range v {
		sq += (x - mean) * (x - mean)
	}
	t95 := []float64{12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13}
	t := 2.0
	if i := len(v) - 2; i < len(t95) {
		t = t95[i]
	}
	return mean, t * math.Sqrt(sq/float64(len(v)-1)/float64(len(v)))
}
