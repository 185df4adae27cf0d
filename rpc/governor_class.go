// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import "context"

// GovernorClass says on whose behalf an outbound call is made. See Governor.
type GovernorClass uint8

const (
	Foreground GovernorClass = iota // somebody waits for the answer; the default
	Background                      // indexing, prefetching, status pages

	numGovernorClasses = 2
)

// String returns "foreground" or "background".
func (c GovernorClass) String() string {
	if c == Background {
		return "background"
	}
	return "foreground"
}

type governorClassKey struct{}

// ContextWithForeground returns a context whose calls are foreground calls, also calls
// of status methods and calls made on behalf of background work.
func ContextWithForeground(ctx context.Context) context.Context {
	return context.WithValue(ctx, governorClassKey{}, Foreground)
}

// ContextWithBackground returns a context whose calls are background calls: they use
// only what the governor's ForegroundReserve leaves and are the first to be refused.
func ContextWithBackground(ctx context.Context) context.Context {
	return context.WithValue(ctx, governorClassKey{}, Background)
}

// GovernorClassFromContext returns the class that ctx was given, and whether it was given
// one.
func GovernorClassFromContext(ctx context.Context) (class GovernorClass, ok bool) {
	class, ok = ctx.Value(governorClassKey{}).(GovernorClass)
	return class, ok
}

// statusMethods are asked by monitors and health checks, by the clock and not because
// somebody needs the answer. They are background unless the context says otherwise: a
// page that polls them every second must not spend the reserve.
var statusMethods = map[string]struct{}{
	"admin_nodeInfo":     {},
	"admin_peers":        {},
	"eth_syncing":        {},
	"net_listening":      {},
	"net_peerCount":      {},
	"rpc_modules":        {},
	"txpool_status":      {},
	"web3_clientVersion": {},
}

// classOfCall returns the class of a call.
func classOfCall(ctx context.Context, method string) GovernorClass {
	if class, ok := GovernorClassFromContext(ctx); ok {
		return class
	}
	if _, ok := statusMethods[method]; ok {
		return Background
	}
	return Foreground
}

// classOfBatch returns the class of a batch, which is a status read only if all of it is.
func classOfBatch(ctx context.Context, batch []BatchElem) GovernorClass {
	if class, ok := GovernorClassFromContext(ctx); ok {
		return class
	}
	for i := range batch {
		if _, ok := statusMethods[batch[i].Method]; !ok {
			return Foreground
		}
	}
	return Background
}
