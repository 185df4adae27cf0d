// SPDX-License-Identifier: LGPL-3.0-or-later

package server

import (
	"testing"

	"github.com/ethereum/go-ethereum/node"
	"github.com/ethereum/go-ethereum/rpc"
)

func TestHookReachedBuildNode(t *testing.T) {
	c := DefaultConfig()
	c.DataDir = t.TempDir()
	c.JsonRPC.Http.ExecutionPoolSize, c.JsonRPC.Ws.ExecutionPoolSize = 30, 20
	cfg, err := c.buildNode()
	if err != nil {
		t.Fatal(err)
	}
	if !cfg.RPCGuard.Enabled || cfg.RPCGuard.Admission.Concurrency != 50 {
		t.Errorf("guard enabled %v, concurrency %d, want 50", cfg.RPCGuard.Enabled, cfg.RPCGuard.Admission.Concurrency)
	}
	if cfg.HTTPJsonRPCExecutionPoolSize != 0 || cfg.WSJsonRPCExecutionPoolSize != 0 {
		t.Error("a second limiter is on")
	}
	if cfg.BatchRequestLimit == 0 || cfg.BatchResponseMaxSize == 0 {
		t.Error("batches over WebSocket have no limit")
	}
}

func TestGuardNodeKeepsDefaults(t *testing.T) {
	cfg := &node.Config{BatchRequestLimit: 7}
	guardNode(cfg)
	if cfg.RPCGuard.Admission.Concurrency != rpc.DefaultGuardConfig.Admission.Concurrency || cfg.BatchRequestLimit != 7 {
		t.Errorf("%+v", cfg.RPCGuard.Admission)
	}
}
