// SPDX-License-Identifier: LGPL-3.0-or-later

// Package rig is what the attacks of tests/slowclient stand on: it starts a node
// from any geth-like binary, talks to it over real sockets from addresses of its
// own choosing, watches its memory and processor time from outside, and keeps a
// polite client beside every attack whose experience is the verdict.
//
// # Model
//
//   - Binary is what a node can be started from. Its --help is read once: a flag
//     is given only where the binary knows it, so that the same code starts stock
//     geth of several years, a fork, and the hardened one.
//   - Node is one running process in --dev mode, with free ports and a directory
//     of its own. It is ended by its process id, also when the test panics, is
//     interrupted or is killed (the kernel ends it then).
//   - Dialer makes connections from 127.0.0.x, so that attackers are other
//     clients than the polite one; its receive buffer and its way of leaving
//     (a reset, never a quiet FIN) are part of most recipes.
//   - Polite asks eth_blockNumber and eth_getBalance 20 times a second and
//     follows newHeads, logs and newPendingTransactions. It knows what it should
//     have seen, since it sends the transactions itself.
//   - Watch samples resident memory and processor time of the process, and ends
//     it when it outgrows a bound: no attack may take the machine with it.
//
// # What is not measured
//
// The rig judges no absolute time. A latency is compared with the same binary's
// unloaded latency, and what the machine itself adds is measured beside it: the
// same requests go to an idle echo server in a process of its own, and its
// delays are not held against the node.
package rig
