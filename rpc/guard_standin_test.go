// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import "os"

// With RPCGUARD_STANDIN=on upstream's own tests of this package, which configure
// no guard, run with the default one on every server.
func init() {
	if os.Getenv("RPCGUARD_STANDIN") != "on" {
		return
	}
	g, err := NewGuard(DefaultGuardConfig, GuardEnv{Procs: 2, HTTPBodyLimit: defaultBodyLimit})
	if err != nil {
		panic(err)
	}
	guardStandIn = g
}
