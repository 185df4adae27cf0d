// SPDX-License-Identifier: LGPL-3.0-or-later

package server

import (
	"github.com/ethereum/go-ethereum/node"
	"github.com/ethereum/go-ethereum/rpc"
)

// guardNode puts the guard's defaults into a node's configuration, and what bor
// leaves out: the limits on batches over WebSocket, which are 0, none, there.
//
// There is one limiter. The pools that execute calls are switched off (size 0 runs a
// call at once), and their sizes are the guard's concurrency: one gate serves both
// servers, so it is their sum. With the pools at 40 each, 80 calls execute at a time.
// A size of 0, no limit, leaves the guard's default.
func guardNode(cfg *node.Config) {
	cfg.RPCGuard = rpc.DefaultGuardConfig
	if cfg.BatchRequestLimit == 0 {
		cfg.BatchRequestLimit = node.DefaultConfig.BatchRequestLimit
	}
	if cfg.BatchResponseMaxSize == 0 {
		cfg.BatchResponseMaxSize = node.DefaultConfig.BatchResponseMaxSize
	}
	http, ws := cfg.HTTPJsonRPCExecutionPoolSize, cfg.WSJsonRPCExecutionPoolSize
	if http > 0 && ws > 0 {
		cfg.RPCGuard.Admission.Concurrency = int(http + ws)
	}
	cfg.HTTPJsonRPCExecutionPoolSize, cfg.WSJsonRPCExecutionPoolSize = 0, 0
}
