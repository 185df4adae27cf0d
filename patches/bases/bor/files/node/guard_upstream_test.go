// SPDX-License-Identifier: LGPL-3.0-or-later

package node

import (
	"github.com/ethereum/go-ethereum/log"
	"github.com/ethereum/go-ethereum/rpc"
)

// bor's server takes the most calls of a batch; 0: as many as there are.
func upstreamHTTPServer(timeouts rpc.HTTPTimeouts) *httpServer {
	return newHTTPServer(log.Root(), timeouts, 0)
}
