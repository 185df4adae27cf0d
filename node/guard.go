// SPDX-License-Identifier: LGPL-3.0-or-later

package node

import (
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
	guard     *rpc.Guard
	bodyLimit int // of HTTP requests in bytes, for servers that are told none
}

// setupGuard builds the guard from the node's configuration and hands it to the
// servers, those included that admin_startHTTP and admin_startWS start later.
func (n *Node) setupGuard() error {
	env := rpc.GuardEnv{
		Procs:         runtime.GOMAXPROCS(0),
		HTTPBodyLimit: int64(n.config.guardBodyLimit()),
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
	ng := &nodeGuard{guard: guard, bodyLimit: n.config.guardBodyLimit()}
	n.http.guard, n.ws.guard = ng, ng
	// Behind the JWT secret are the consensus client and the operator.
	auth := &nodeGuard{guard: guard.Trusted()}
	n.httpAuth.guard, n.wsAuth.guard = auth, auth
	n.inprocHandler.SetGuard(guard.InProc())
	n.rpcAPIs = append(n.rpcAPIs, guard.APIs()...) // the IPC server finds the guard among them
	guard.PublishMetrics()
	rpc.SampleClientLogs()
	return nil
}

// attach gives srv its guard before it serves.
func (ng *nodeGuard) attach(srv *rpc.Server, config rpcEndpointConfig) {
	if ng == nil {
		return
	}
	srv.SetGuard(ng.guard)
	if config.httpBodyLimit == 0 && ng.bodyLimit > 0 {
		srv.SetHTTPBodyLimit(ng.bodyLimit) // admin_startHTTP and admin_startWS pass none
	}
}
