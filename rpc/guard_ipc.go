// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"fmt"
	"net"
)

// StartIPCEndpoint is the package's function of that name with a server that has
// its guard before the listener accepts: setting it on the server afterwards
// would race the first connection. Clients of the endpoint are trusted.
func (g *Guard) StartIPCEndpoint(endpoint string, apis []API) (net.Listener, *Server, error) {
	if g = g.orStandIn(); g == nil {
		return StartIPCEndpoint(endpoint, apis)
	}
	srv := newPlainServer()
	srv.SetGuard(g.Trusted())
	for _, api := range apis {
		if err := srv.RegisterName(api.Namespace, api.Service); err != nil {
			return nil, nil, fmt.Errorf("IPC namespace %q: %w", api.Namespace, err)
		}
	}
	listener, err := ipcListen(endpoint)
	if err != nil {
		return nil, nil, err
	}
	go srv.ServeListener(listener)
	return listener, srv, nil
}
