// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import "github.com/ethereum/go-ethereum/cmd/utils"

// The guard's flags join rpcFlags while package variables are initialised, and
// before any other variable of the package copies that list: Go initialises the
// variables of the file that sorts first before those of later ones. Hence the
// name of this file; from guard.go the console and dumpconfig commands and the
// GETH_ environment variables would miss the flags (TestGuardFlagsReachAll).
var _ = addRPCGuardFlags()

func addRPCGuardFlags() bool {
	rpcFlags = append(rpcFlags, utils.RPCGuardFlags()...)
	return true
}
