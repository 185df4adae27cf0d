// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// GuardConfig holds every limit the guard enforces. The zero value means off:
// no guard, and the server behaves exactly as upstream's. DefaultGuardConfig is
// what geth starts with.
//
// A field that is documented as "derived" takes a value that depends on the
// machine when it is zero. All sizes are bytes.
type GuardConfig struct {
	Enabled bool // --rpc.guard; false is stock behaviour, byte for byte
	DryRun  bool // --rpc.guard.dryrun; everything is counted as if refused, nothing is

	Admission GuardAdmissionConfig
	Body      GuardBodyConfig
	Reply     GuardReplyConfig
	Sub       GuardSubConfig
	Filter    GuardFilterConfig
	Conn      GuardConnConfig
	Heavy     GuardHeavyConfig
	Client    GuardClientConfig
}

// GuardAdmissionConfig bounds the calls that execute and wait on the untrusted
// servers of a node.
type GuardAdmissionConfig struct {
	Concurrency  int           // calls executing, at least 1
	Queue        int           // calls waiting; with 0 a call executes or is refused
	CPU          int           // compute and heavy calls executing together; 0: derived, max(1, GOMAXPROCS-1)
	Heavy        int           // heavy calls executing; 0: derived, max(1, GOMAXPROCS/2)
	Parked       int           // parked calls (they sleep in the node), at least 1
	InFlight     int           // calls in flight on one stream connection, at least 1
	Wait         time.Duration // longest wait for a permit, above 0
	HeavyTimeout time.Duration // cap on the time-out a client may ask of a tracer; 0: derived, the larger of 30 s and the HTTP write time-out
	Status       int           // HTTP status of a call refused alone: 200, 429 or 503
	Code         int           // JSON-RPC code of a refusal: -32013 or -32005

	// Method patterns added to the built-in lists of a class: a full method
	// name, or a prefix followed by '*'. They win over the built-in lists.
	LightMethods   []string `toml:",omitempty"`
	NormalMethods  []string `toml:",omitempty"`
	ComputeMethods []string `toml:",omitempty"`
	HeavyMethods   []string `toml:",omitempty"`
	ParkedMethods  []string `toml:",omitempty"`
}

// GuardBodyConfig bounds the bytes of requests being read or worked on.
type GuardBodyConfig struct {
	Budget  int64         // all request bytes together; 0: derived, memory/16 within 64..256 MiB
	Idle    time.Duration // longest pause inside a body or a message, above 0
	WSLimit int64         // largest WebSocket message; 0: derived, upstream's 32 MiB
}

// GuardReplyConfig bounds the bytes of replies that have not left yet.
type GuardReplyConfig struct {
	Max    int64 // largest encoded result; 0: unlimited
	Budget int64 // all reply bytes together; 0: derived, memory/8 within 256..512 MiB
}

// GuardSubConfig bounds what waits for one subscriber.
type GuardSubConfig struct {
	Overflow  string // "close" the connection of a slow consumer, or "unsubscribe" it
	Events    int    // events waiting for one subscription, at least 1
	Bytes     int64  // bytes waiting for one subscription, at least 1
	ConnBytes int64  // bytes waiting for all subscriptions of a connection, at least Bytes
	Max       int    // subscriptions of one connection, at least 1
	Budget    int64  // what the subscriptions and polling filters of a node keep, 4 KiB each and their parameters; 0: derived, memory/64 within 64..256 MiB
}

// GuardFilterConfig bounds the polling filters.
type GuardFilterConfig struct {
	Max          int   // filters of a node, at least 1
	MaxPerClient int   // filters of one client, 1..Max
	Bytes        int64 // bytes queued in one filter, at least 1
	TotalBytes   int64 // bytes queued in all filters, at least Bytes
}

// GuardConnConfig bounds the connections of the untrusted servers.
type GuardConnConfig struct {
	Max          int // connections, streams and HTTP together, at least 1
	MaxPerClient int // connections of one client, 1..Max
}

// GuardHeavyConfig says which heavy calls an untrusted server runs at all.
type GuardHeavyConfig struct {
	JSTracers bool // false refuses JavaScript tracers, whose memory cannot be metered
}

// GuardClientConfig says how clients are told apart.
type GuardClientConfig struct {
	TrustedProxies []string `toml:",omitempty"` // CIDRs whose X-Forwarded-For is believed
	Local          bool     // treat loopback, private and link-local peers as clients of their own
}

// Bounds of the derived budgets.
const (
	minBodyBudget  = 64 << 20
	maxBodyBudget  = 256 << 20
	minReplyBudget = 256 << 20
	maxReplyBudget = 512 << 20
	minKeptBudget  = 64 << 20
	maxKeptBudget  = 256 << 20
)

// DefaultGuardConfig is the configuration of a node that says nothing else.
var DefaultGuardConfig = GuardConfig{
	Enabled: true,
	Admission: GuardAdmissionConfig{
		Concurrency: 640,
		Queue:       8192,
		Parked:      1024,
		InFlight:    256,
		Wait:        5 * time.Second,
		Status:      429,
		Code:        -32013,
	},
	Body:   GuardBodyConfig{Idle: 10 * time.Second},
	Reply:  GuardReplyConfig{Max: 256 << 20},
	Sub:    GuardSubConfig{Overflow: "close", Events: 4096, Bytes: 8 << 20, ConnBytes: 32 << 20, Max: 1024},
	Filter: GuardFilterConfig{Max: 4096, MaxPerClient: 256, Bytes: 8 << 20, TotalBytes: 128 << 20},
	Conn:   GuardConnConfig{Max: 10000, MaxPerClient: 1000},
	Heavy:  GuardHeavyConfig{JSTracers: true},
}

// GuardEnv is what the limits depend on besides the configuration.
type GuardEnv struct {
	Procs         int           // processors Go may use (GOMAXPROCS), at least 1
	Memory        uint64        // total memory in bytes; 0: unknown, derived budgets take their lower bound
	HTTPBodyLimit int64         // largest HTTP body the node takes
	ReadTimeout   time.Duration // of the HTTP server; 0: none
	WriteTimeout  time.Duration // of the HTTP server; 0: none
}

// derivedFlags are those whose 0 means a limit that resolve derives.
var derivedFlags = []string{
	"rpc.admission.cpu", "rpc.admission.heavy", "rpc.body.ws-limit", "rpc.body.budget", "rpc.reply.budget", "rpc.sub.budget",
}

// resolve fills the derived fields. It changes no value that was set.
func (c GuardConfig) resolve(env GuardEnv) GuardConfig {
	if c.Admission.CPU == 0 {
		c.Admission.CPU = max(1, env.Procs-1)
	}
	if c.Admission.Heavy == 0 {
		c.Admission.Heavy = min(c.Admission.CPU, max(1, env.Procs/2))
	}
	if c.Admission.HeavyTimeout == 0 {
		c.Admission.HeavyTimeout = max(30*time.Second, env.WriteTimeout)
	}
	if c.Body.WSLimit == 0 {
		c.Body.WSLimit = wsDefaultReadLimit
	}
	memory := int64(min(env.Memory, math.MaxInt64))
	if c.Body.Budget == 0 {
		derived := min(max(memory/16, minBodyBudget), maxBodyBudget)
		c.Body.Budget = max(derived, c.bodyFloor(env))
	}
	if c.Reply.Budget == 0 {
		derived := min(max(memory/8, minReplyBudget), maxReplyBudget)
		c.Reply.Budget = max(derived, c.Reply.Max)
	}
	if c.Sub.Budget == 0 {
		c.Sub.Budget = min(max(memory/64, minKeptBudget), maxKeptBudget)
	}
	return c
}

// bodyFloor is the least budget that can hold the largest request the node
// accepts; below it such a request could never be served.
func (c GuardConfig) bodyFloor(env GuardEnv) int64 {
	return max(env.HTTPBodyLimit, c.Body.WSLimit)
}

// validate refuses a resolved configuration that makes no sense. The error names
// the flag, the field and the allowed range.
func (c GuardConfig) validate(env GuardEnv) error {
	a := &c.Admission
	const maxInt = math.MaxInt
	for _, f := range []struct {
		flag, field string
		value       int64
		low, high   int64
	}{
		{"rpc.admission.concurrency", "Admission.Concurrency", int64(a.Concurrency), 1, maxInt},
		{"rpc.admission.queue", "Admission.Queue", int64(a.Queue), 0, maxInt},
		{"rpc.admission.cpu", "Admission.CPU", int64(a.CPU), 1, maxInt},
		{"rpc.admission.heavy", "Admission.Heavy", int64(a.Heavy), 1, maxInt},
		{"rpc.admission.parked", "Admission.Parked", int64(a.Parked), 1, maxInt},
		{"rpc.admission.inflight", "Admission.InFlight", int64(a.InFlight), 1, maxInt},
		{"rpc.body.ws-limit", "Body.WSLimit", c.Body.WSLimit, 1, math.MaxInt64},
		{"rpc.body.budget", "Body.Budget", c.Body.Budget, c.bodyFloor(env), math.MaxInt64},
		{"rpc.reply.max", "Reply.Max", c.Reply.Max, 0, math.MaxInt64},
		{"rpc.reply.budget", "Reply.Budget", c.Reply.Budget, max(1, c.Reply.Max), math.MaxInt64},
		{"rpc.sub.events", "Sub.Events", int64(c.Sub.Events), 1, maxInt},
		{"rpc.sub.bytes", "Sub.Bytes", c.Sub.Bytes, 1, math.MaxInt64},
		{"rpc.sub.conn-bytes", "Sub.ConnBytes", c.Sub.ConnBytes, max(1, c.Sub.Bytes), math.MaxInt64},
		{"rpc.sub.max", "Sub.Max", int64(c.Sub.Max), 1, maxInt},
		{"rpc.sub.budget", "Sub.Budget", c.Sub.Budget, 1 << 20, math.MaxInt64},
		{"rpc.filter.max", "Filter.Max", int64(c.Filter.Max), 1, maxInt},
		{"rpc.filter.max-per-client", "Filter.MaxPerClient", int64(c.Filter.MaxPerClient), 1, int64(max(1, c.Filter.Max))},
		{"rpc.filter.bytes", "Filter.Bytes", c.Filter.Bytes, 1, math.MaxInt64},
		{"rpc.filter.total-bytes", "Filter.TotalBytes", c.Filter.TotalBytes, max(1, c.Filter.Bytes), math.MaxInt64},
		{"rpc.conn.max", "Conn.Max", int64(c.Conn.Max), 1, maxInt},
		{"rpc.conn.max-per-client", "Conn.MaxPerClient", int64(c.Conn.MaxPerClient), 1, int64(max(1, c.Conn.Max))},
	} {
		if f.value < f.low || f.value > f.high {
			if f.high != maxInt && f.high != math.MaxInt64 {
				return fmt.Errorf("--%s (RPCGuard.%s): %d is out of range, want %d to %d, which is --%s",
					f.flag, f.field, f.value, f.low, f.high, strings.TrimSuffix(f.flag, "-per-client"))
			}
			or := ""
			if slices.Contains(derivedFlags, f.flag) {
				or = ", or 0 for a limit that fits the machine"
			}
			return fmt.Errorf("--%s (RPCGuard.%s): %d is out of range, want at least %d%s", f.flag, f.field, f.value, f.low, or)
		}
	}
	for _, f := range []struct {
		flag, field string
		value       time.Duration
	}{
		{"rpc.admission.wait", "Admission.Wait", a.Wait},
		{"rpc.admission.heavy-timeout", "Admission.HeavyTimeout", a.HeavyTimeout},
		{"rpc.body.idle", "Body.Idle", c.Body.Idle},
	} {
		if f.value <= 0 {
			return fmt.Errorf("--%s (RPCGuard.%s): %v is out of range, want more than 0s", f.flag, f.field, f.value)
		}
	}
	if a.Status != 200 && a.Status != 429 && a.Status != 503 {
		return fmt.Errorf("--rpc.admission.status (RPCGuard.Admission.Status): %d is not allowed, want 200, 429 or 503", a.Status)
	}
	if a.Code != -32013 && a.Code != -32005 {
		return fmt.Errorf("--rpc.admission.code (RPCGuard.Admission.Code): %d is not allowed, want -32013 or -32005", a.Code)
	}
	if c.Sub.Overflow != "close" && c.Sub.Overflow != "unsubscribe" {
		return fmt.Errorf("--rpc.sub.overflow (RPCGuard.Sub.Overflow): %q is not allowed, want close or unsubscribe", c.Sub.Overflow)
	}
	for _, cidr := range c.Client.TrustedProxies {
		if _, err := netip.ParsePrefix(cidr); err != nil {
			return fmt.Errorf("--rpc.client.trusted-proxies (RPCGuard.Client.TrustedProxies): %q is not a CIDR, want one such as 10.0.0.0/8", cidr)
		}
	}
	return nil
}
