// SPDX-License-Identifier: LGPL-3.0-or-later

package server

import (
	"github.com/ethereum/go-ethereum/cmd/utils"
	"github.com/ethereum/go-ethereum/internal/cli/flagset"
	"github.com/ethereum/go-ethereum/node"
	"github.com/ethereum/go-ethereum/rpc"
	"github.com/urfave/cli/v2"
)

// defaultGuard is the default of [jsonrpc.guard]: geth's, with a concurrency of 0,
// which means the sizes of the pools (see guardNode). An HCL file has no such block;
// it leaves a nil, which stands for this too.
func defaultGuard() *rpc.GuardConfig {
	cfg := rpc.DefaultGuardConfig
	cfg.Admission.Concurrency = 0
	return &cfg
}

// guardFlags adds geth's --rpc.* flags of the guard.
func (c *Command) guardFlags(f *flagset.Flagset) {
	if c.cliConfig.JsonRPC.Guard == nil {
		c.cliConfig.JsonRPC.Guard = defaultGuard()
	}
	for _, fl := range utils.RPCGuardFlags() {
		doc, ok := fl.(cli.DocGenerationFlag)
		if !ok {
			continue
		}
		name, def := fl.Names()[0], doc.GetValue()
		if name == "rpc.admission.concurrency" {
			def = "http.ep-size + ws.ep-size"
		}
		_, boolean := fl.(*cli.BoolFlag)
		f.GuardFlag(name, doc.GetUsage(), def, &guardValue{name: name, boolean: boolean, cfg: c.cliConfig.JsonRPC.Guard})
	}
}

// guardValue sets one field of the guard's configuration.
type guardValue struct {
	name    string
	boolean bool
	cfg     *rpc.GuardConfig
	text    string // what was set last
}

// Set implements flag.Value.
func (v *guardValue) Set(text string) error {
	v.text = text
	return utils.SetRPCGuardFlag(v.name, text, v.cfg)
}

// String implements flag.Value.
func (v *guardValue) String() string { return v.text }

// IsBoolFlag lets the flag package take the name alone for true.
func (v *guardValue) IsBoolFlag() bool { return v.boolean }

// guardNode puts the guard into a node's configuration, and what bor leaves out: the
// limits on batches over WebSocket, which are 0, none, there.
//
// There is one limiter. The pools that execute calls are switched off (size 0 runs a
// call at once), and their sizes are the guard's concurrency unless that is set: one
// gate serves both servers, so it is their sum. With the pools at 40 each, 80 calls
// execute at a time. A size of 0, no limit, leaves geth's default. A guard that is off
// or only counts changes nothing of this.
func guardNode(cfg *node.Config, guard *rpc.GuardConfig) {
	if guard == nil {
		guard = defaultGuard()
	}
	cfg.RPCGuard = *guard
	http, ws := cfg.HTTPJsonRPCExecutionPoolSize, cfg.WSJsonRPCExecutionPoolSize
	if a := &cfg.RPCGuard.Admission; a.Concurrency == 0 {
		a.Concurrency = rpc.DefaultGuardConfig.Admission.Concurrency
		if http > 0 && ws > 0 {
			a.Concurrency = int(http + ws)
		}
	}
	if !guard.Enabled || guard.DryRun {
		return
	}
	if cfg.BatchRequestLimit == 0 {
		cfg.BatchRequestLimit = node.DefaultConfig.BatchRequestLimit
	}
	if cfg.BatchResponseMaxSize == 0 {
		cfg.BatchResponseMaxSize = node.DefaultConfig.BatchResponseMaxSize
	}
	cfg.HTTPJsonRPCExecutionPoolSize, cfg.WSJsonRPCExecutionPoolSize = 0, 0
}
