// SPDX-License-Identifier: LGPL-3.0-or-later

package ethapi

import "github.com/ethereum/go-ethereum/rpc"

// newServer makes a server. In bor it takes the size of a pool.
func newServer() *rpc.Server { return rpc.NewServer() }
