// SPDX-License-Identifier: LGPL-3.0-or-later

// Command bench compares two geth binaries, stock and hardened, side by side in one run
// on one machine: what a call costs, what delivering an event costs, and what is left of
// a node under overload.
//
//	go run ./tests/bench --stock build/bin/geth-stock --ours build/bin/geth
//	go run ./tests/bench ... --run 'http/.*/32' --rounds 9 --json > report.json
//	go run ./tests/bench --markdown report.json
//
// # How it measures
//
// Both nodes run all the time, each with a dev chain of the same accounts and contracts. A round is one
// sample of each: the samples of a round are taken right after one another, and who goes
// first alternates, so that what the machine does to one it does to the other. Per round
// the ratio ours/stock is taken; the figure reported is the median of the ratios with the
// interval between two of them that holds the true median with at least 95 %
// probability, whatever the distribution (order statistics; from 6 rounds on).
//
// Processor time is that of the node's process, from outside, in steps of 10 ms: the
// generator's does not count. It is little disturbed by other work on the machine,
// unlike calls per second, where node, generator and everybody else compete.
//
// # Groups of workloads
//
//   - requests: closed loop, each connection has one request under way.
//   - refused: the same, of calls that ours refuses while another holds the permit, and of
//     a method that stock does not have.
//   - latency: of eth_blockNumber, asked by one client, while others keep every permit of
//     the EVM held.
//   - fanout: subscribers of one event source; what one delivered notification costs, and
//     how long after the first subscriber the last one has a block's notifications.
//   - idle: subscriptions to which nothing is delivered; what each holds of the heap and
//     of stacks after a collection.
//   - overload: reads, calls of the EVM and traces are sent by the clock, whether or not
//     earlier ones are answered, at multiples of what stock serves when asked one at a
//     time by a few clients, with a polite client beside. What counts is what is answered
//     while the clock runs, each kind for what it costs stock when nothing else runs:
//     else a node that drops all that is dear would look best.
//
// Non-goals: absolute figures of other machines, networks with delay, disk.
package main
