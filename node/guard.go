// SPDX-License-Identifier: LGPL-3.0-or-later

package node

import (
	"net"
	"net/http"
	"runtime"

	"github.com/ethereum/go-ethereum/rpc"
	"github.com/shirou/gopsutil/mem"
)

func init() {
	DefaultConfig.RPCGuard = rpc.DefaultGuardConfig
}

// nodeGuard gives each RPC server of a node its view of the node's one guard.
// nil, as without a guard, leaves them as upstream made them.
type nodeGuard struct {
	guard *rpc.Guard
}

// setupGuard builds the guard from the node's configuration and hands it to the
// servers, those included that admin_startHTTP and admin_startWS start later.
func (n *Node) setupGuard() error {
	env := rpc.GuardEnv{
		Procs:         runtime.GOMAXPROCS(0),
		HTTPBodyLimit: int64(n.config.HTTPBodyLimit),
		ReadTimeout:   n.config.HTTPTimeouts.ReadTimeout,
		WriteTimeout:  n.config.HTTPTimeouts.WriteTimeout,
	}
	if vm, err := mem.VirtualMemory(); err == nil {
		env.Memory = vm.Total
	}
	guard, err := rpc.NewGuard(n.config.RPCGuard, env)
	if err != nil || guard == nil {
		return err
	}
	ng := &nodeGuard{guard: guard}
	n.http.guard, n.ws.guard, n.httpAuth.guard, n.wsAuth.guard, n.ipc.guard = ng, ng, ng, ng, ng
	n.inprocHandler.SetGuard(guard.InProc())
	n.rpcAPIs = append(n.rpcAPIs, guard.APIs()...)
	rpc.SampleClientLogs()
	return nil
}

// attach gives srv its guard before it serves. A server behind a JWT secret is
// the consensus client's, or an operator's: its clients are trusted.
func (ng *nodeGuard) attach(srv *rpc.Server, config rpcEndpointConfig) {
	if ng == nil {
		return
	}
	guard := ng.guard
	if len(config.jwtSecret) > 0 {
		guard = guard.Trusted()
	}
	srv.SetGuard(guard)
}

// listen prepares an HTTP server and its listener before the first accept.
func (ng *nodeGuard) listen(srv *http.Server, l net.Listener) net.Listener {
	return l
}

// handler wraps what is mounted beside JSON-RPC, GraphQL above all.
func (ng *nodeGuard) handler(name string, h http.Handler) http.Handler {
	return h
}

func (ng *nodeGuard) startIPC(endpoint string, apis []rpc.API) (net.Listener, *rpc.Server, error) {
	if ng == nil {
		return rpc.StartIPCEndpoint(endpoint, apis)
	}
	return ng.guard.StartIPCEndpoint(endpoint, apis)
}
