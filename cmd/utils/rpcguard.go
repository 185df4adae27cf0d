// SPDX-License-Identifier: LGPL-3.0-or-later

package utils

import (
	"strings"

	"github.com/ethereum/go-ethereum/internal/flags"
	"github.com/ethereum/go-ethereum/node"
	"github.com/ethereum/go-ethereum/rpc"
	"github.com/urfave/cli/v2"
)

// guardFlag ties one command line flag to one field of the guard's configuration.
type guardFlag struct {
	cli.Flag
	set func(ctx *cli.Context, name string, cfg *rpc.GuardConfig)
}

// guardDefaults is where the flags take their default values from.
var guardDefaults = &rpc.DefaultGuardConfig

// guardFlags lists the flags in the order of the help text. The values are
// checked where the guard is built, so that TOML and flags obey the same ranges.
var guardFlags = []guardFlag{
	guardBool("rpc.guard", "Protect the RPC servers against overload (false: stock behaviour)",
		func(c *rpc.GuardConfig) *bool { return &c.Enabled }),
	guardBool("rpc.guard.dryrun", "Count what the guard would refuse, but refuse nothing",
		func(c *rpc.GuardConfig) *bool { return &c.DryRun }),

	guardInt("rpc.admission.concurrency", "Maximum number of calls executing at once",
		func(c *rpc.GuardConfig) *int { return &c.Admission.Concurrency }),
	guardInt("rpc.admission.queue", "Maximum number of calls waiting for execution",
		func(c *rpc.GuardConfig) *int { return &c.Admission.Queue }),
	guardInt("rpc.admission.cpu", "Maximum number of EVM and heavy calls executing at once (0 = processors - 1)",
		func(c *rpc.GuardConfig) *int { return &c.Admission.CPU }),
	guardInt("rpc.admission.heavy", "Maximum number of heavy calls (traces, proofs, wide log queries) executing at once (0 = processors / 2)",
		func(c *rpc.GuardConfig) *int { return &c.Admission.Heavy }),
	guardInt("rpc.admission.parked", "Maximum number of calls asleep in the node, such as eth_sendRawTransactionSync",
		func(c *rpc.GuardConfig) *int { return &c.Admission.Parked }),
	guardInt("rpc.admission.inflight", "Maximum number of calls in flight on one WebSocket connection",
		func(c *rpc.GuardConfig) *int { return &c.Admission.InFlight }),
	{&cli.DurationFlag{Name: "rpc.admission.wait", Usage: "Longest time a call waits for execution before it is refused",
		Value: guardDefaults.Admission.Wait, Category: flags.APICategory},
		func(ctx *cli.Context, name string, c *rpc.GuardConfig) { c.Admission.Wait = ctx.Duration(name) }},
	{&cli.DurationFlag{Name: "rpc.admission.heavy-timeout", Usage: "Cap on the time-out a client may ask of a tracer (0 = the larger of 30s and the HTTP write time-out)",
		Value: guardDefaults.Admission.HeavyTimeout, Category: flags.APICategory},
		func(ctx *cli.Context, name string, c *rpc.GuardConfig) { c.Admission.HeavyTimeout = ctx.Duration(name) }},
	guardInt("rpc.admission.status", "HTTP status of a refused call (200, 429 or 503)",
		func(c *rpc.GuardConfig) *int { return &c.Admission.Status }),
	guardInt("rpc.admission.code", "JSON-RPC error code of a refused call (-32013 or -32005)",
		func(c *rpc.GuardConfig) *int { return &c.Admission.Code }),
	guardList("rpc.admission.light-methods", "Comma separated methods (or prefix*) added to the light class",
		func(c *rpc.GuardConfig) *[]string { return &c.Admission.LightMethods }),
	guardList("rpc.admission.normal-methods", "Comma separated methods (or prefix*) added to the normal class",
		func(c *rpc.GuardConfig) *[]string { return &c.Admission.NormalMethods }),
	guardList("rpc.admission.compute-methods", "Comma separated methods (or prefix*) added to the compute class",
		func(c *rpc.GuardConfig) *[]string { return &c.Admission.ComputeMethods }),
	guardList("rpc.admission.heavy-methods", "Comma separated methods (or prefix*) added to the heavy class",
		func(c *rpc.GuardConfig) *[]string { return &c.Admission.HeavyMethods }),
	guardList("rpc.admission.parked-methods", "Comma separated methods (or prefix*) added to the parked class",
		func(c *rpc.GuardConfig) *[]string { return &c.Admission.ParkedMethods }),

	guardBytes("rpc.body.budget", "Maximum bytes of requests being read or worked on (0 = memory / 16, 64 to 256 MiB)",
		func(c *rpc.GuardConfig) *int64 { return &c.Body.Budget }),
	{&cli.DurationFlag{Name: "rpc.body.idle", Usage: "Longest pause inside a request body or a WebSocket message",
		Value: guardDefaults.Body.Idle, Category: flags.APICategory},
		func(ctx *cli.Context, name string, c *rpc.GuardConfig) { c.Body.Idle = ctx.Duration(name) }},
	guardBytes("rpc.body.ws-limit", "Maximum bytes of a WebSocket message (0 = 32 MiB)",
		func(c *rpc.GuardConfig) *int64 { return &c.Body.WSLimit }),

	guardBytes("rpc.reply.max", "Maximum bytes of one encoded result (0 = unlimited)",
		func(c *rpc.GuardConfig) *int64 { return &c.Reply.Max }),
	guardBytes("rpc.reply.budget", "Maximum bytes of replies that have not left yet (0 = memory / 8, 256 to 512 MiB)",
		func(c *rpc.GuardConfig) *int64 { return &c.Reply.Budget }),

	{&cli.StringFlag{Name: "rpc.sub.overflow", Usage: "What happens to a subscriber that cannot keep up: close (the connection) or unsubscribe",
		Value: guardDefaults.Sub.Overflow, Category: flags.APICategory},
		func(ctx *cli.Context, name string, c *rpc.GuardConfig) { c.Sub.Overflow = ctx.String(name) }},
	guardInt("rpc.sub.events", "Maximum events waiting for one subscription",
		func(c *rpc.GuardConfig) *int { return &c.Sub.Events }),
	guardBytes("rpc.sub.bytes", "Maximum bytes waiting for one subscription",
		func(c *rpc.GuardConfig) *int64 { return &c.Sub.Bytes }),
	guardBytes("rpc.sub.conn-bytes", "Maximum bytes waiting for the subscriptions of one connection",
		func(c *rpc.GuardConfig) *int64 { return &c.Sub.ConnBytes }),
	guardInt("rpc.sub.max", "Maximum number of subscriptions on one connection",
		func(c *rpc.GuardConfig) *int { return &c.Sub.Max }),
	guardBytes("rpc.sub.budget", "Maximum bytes that subscriptions and polling filters keep, 4 KiB each and their parameters (0 = memory / 64, 64 to 256 MiB)",
		func(c *rpc.GuardConfig) *int64 { return &c.Sub.Budget }),

	guardInt("rpc.filter.max", "Maximum number of polling filters",
		func(c *rpc.GuardConfig) *int { return &c.Filter.Max }),
	guardInt("rpc.filter.max-per-client", "Maximum number of polling filters of one client",
		func(c *rpc.GuardConfig) *int { return &c.Filter.MaxPerClient }),
	guardBytes("rpc.filter.bytes", "Maximum bytes queued in one polling filter",
		func(c *rpc.GuardConfig) *int64 { return &c.Filter.Bytes }),
	guardBytes("rpc.filter.total-bytes", "Maximum bytes queued in all polling filters",
		func(c *rpc.GuardConfig) *int64 { return &c.Filter.TotalBytes }),

	guardInt("rpc.conn.max", "Maximum number of HTTP and WebSocket connections",
		func(c *rpc.GuardConfig) *int { return &c.Conn.Max }),
	guardInt("rpc.conn.max-per-client", "Maximum number of HTTP and WebSocket connections of one client",
		func(c *rpc.GuardConfig) *int { return &c.Conn.MaxPerClient }),

	guardBool("rpc.heavy.jstracers", "Run JavaScript tracers, whose memory cannot be bounded",
		func(c *rpc.GuardConfig) *bool { return &c.Heavy.JSTracers }),

	guardList("rpc.client.trusted-proxies", "Comma separated CIDRs of proxies whose X-Forwarded-For header names the client",
		func(c *rpc.GuardConfig) *[]string { return &c.Client.TrustedProxies }),
	guardBool("rpc.client.local", "Treat loopback and private peers as clients of their own, not as one proxy",
		func(c *rpc.GuardConfig) *bool { return &c.Client.Local }),
}

// RPCGuardFlags are the flags of the guard, for a command's flag list.
func RPCGuardFlags() []cli.Flag {
	list := make([]cli.Flag, len(guardFlags))
	for i, f := range guardFlags {
		list[i] = f.Flag
	}
	return list
}

// setRPCGuard applies the flags that were given to the node's configuration.
func setRPCGuard(ctx *cli.Context, cfg *node.Config) {
	for _, f := range guardFlags {
		if name := f.Names()[0]; ctx.IsSet(name) {
			f.set(ctx, name, &cfg.RPCGuard)
		}
	}
}

func guardBool(name, usage string, field func(*rpc.GuardConfig) *bool) guardFlag {
	return guardFlag{
		&cli.BoolFlag{Name: name, Usage: usage, Value: *field(guardDefaults), Category: flags.APICategory},
		func(ctx *cli.Context, name string, c *rpc.GuardConfig) { *field(c) = ctx.Bool(name) },
	}
}

func guardInt(name, usage string, field func(*rpc.GuardConfig) *int) guardFlag {
	return guardFlag{
		&cli.IntFlag{Name: name, Usage: usage, Value: *field(guardDefaults), Category: flags.APICategory},
		func(ctx *cli.Context, name string, c *rpc.GuardConfig) { *field(c) = ctx.Int(name) },
	}
}

func guardBytes(name, usage string, field func(*rpc.GuardConfig) *int64) guardFlag {
	return guardFlag{
		&cli.Int64Flag{Name: name, Usage: usage, Value: *field(guardDefaults), Category: flags.APICategory},
		func(ctx *cli.Context, name string, c *rpc.GuardConfig) { *field(c) = ctx.Int64(name) },
	}
}

func guardList(name, usage string, field func(*rpc.GuardConfig) *[]string) guardFlag {
	return guardFlag{
		&cli.StringFlag{Name: name, Usage: usage, Value: strings.Join(*field(guardDefaults), ","), Category: flags.APICategory},
		func(ctx *cli.Context, name string, c *rpc.GuardConfig) { *field(c) = SplitAndTrim(ctx.String(name)) },
	}
}
