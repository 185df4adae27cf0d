// SPDX-License-Identifier: LGPL-3.0-or-later

package node

import (
	"github.com/ethereum/go-ethereum/log"
	"github.com/ethereum/go-ethereum/rpc"
)

func upstreamHTTPServer(timeouts rpc.HTTPTimeouts) *httpServer {
	return newHTTPServer(log.Root(), timeouts)
}
