// SPDX-License-Identifier: LGPL-3.0-or-later

package ethclient_test

import (
	"os"
	_ "unsafe" // for go:linkname

	"github.com/ethereum/go-ethereum/rpc"
)

//go:linkname guardStandIn github.com/ethereum/go-ethereum/rpc.guardStandIn
var guardStandIn *rpc.Guard

// With RPCGUARD_STANDIN=on upstream's own tests of this package, which configure
// no guard, run with the default one on every server.
func init() {
	if os.Getenv("RPCGUARD_STANDIN") != "on" {
		return
	}
	g, err := rpc.NewGuard(rpc.DefaultGuardConfig, rpc.GuardEnv{Procs: 2, HTTPBodyLimit: 5 << 20})
	if err != nil {
		panic(err)
	}
	guardStandIn = g
}
