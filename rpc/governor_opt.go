// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

// WithGovernor makes the client pay for every call from the governor's budget: first
// attempts, retries, reconnects and fall-backs, single calls, batch elements,
// notifications and the set-up of subscriptions. Any number of clients, of any
// transport, can share one governor. A nil governor leaves the client ungoverned.
//
// On a governed HTTP client a JSON-RPC error in the body of a non-2xx answer is returned
// as such (see Error), with the HTTPError reachable through errors.As.
func WithGovernor(g *Governor) ClientOption {
	return optionFunc(func(cfg *clientConfig) {
		cfg.guarded().governor = g
	})
}

// WithRetries makes a governed client repeat a call up to max times, if it is safe to
// repeat and the endpoint was overloaded (which pauses the governor) or failed. Each
// attempt is paid for. Of a batch only the refused elements are sent again. 0, the
// default, is for callers that do it themselves. A negative max panics.
func WithRetries(max int) ClientOption {
	if max < 0 {
		panic("negative number of retries configured")
	}
	return optionFunc(func(cfg *clientConfig) {
		cfg.guarded().retries = max
	})
}

// WithRepeatableMethods declares further methods safe to repeat, besides the reads of the
// eth, debug, net, txpool and web3 namespaces that are known to be. Declare
// eth_sendRawTransaction if the caller copes with "already known".
func WithRepeatableMethods(methods ...string) ClientOption {
	return optionFunc(func(cfg *clientConfig) {
		g := cfg.guarded()
		if g.repeatable == nil {
			g.repeatable = make(map[string]struct{}, len(methods))
		}
		for _, method := range methods {
			g.repeatable[method] = struct{}{}
		}
	})
}

// WithFallbacks gives a governed client further endpoints, tried in turn with calls that
// are safe to repeat when an endpoint is overloaded or fails: each is tried at least
// once, more often if WithRetries says so. They pay from the budget of the client that
// uses them, and a refusal by the governor is no reason to use one.
//
// The caller dials and closes them. If one has a governor of its own it is not consulted.
func WithFallbacks(clients ...*Client) ClientOption {
	for _, c := range clients {
		if c == nil {
			panic("nil fall-back client configured")
		}
	}
	return optionFunc(func(cfg *clientConfig) {
		g := cfg.guarded()
		g.fallbacks = append(g.fallbacks, clients...)
		for _, c := range clients {
			c.governed() // it is used without asking for that
		}
	})
}

// WithMergedReads makes a governed client answer a read from an identical one (same
// method, parameters and class) that is waiting or on its way, at no cost. What is read
// may then be older than the call by the time the other has been under way.
func WithMergedReads() ClientOption {
	return optionFunc(func(cfg *clientConfig) {
		cfg.guarded().flights = new(readFlights)
	})
}

func (cfg *clientConfig) guarded() *clientGuard {
	if cfg.guard == nil {
		cfg.guard = new(clientGuard)
	}
	return cfg.guard
}
