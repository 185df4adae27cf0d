// SPDX-License-Identifier: LGPL-3.0-or-later

package ethapi

import "github.com/ethereum/go-ethereum/rpc"

// The variant for bor, where a pool of size 0 runs calls at once.

// newServer makes a server.
func newServer() *rpc.Server { return rpc.NewServer("guard", 0, 0) }
