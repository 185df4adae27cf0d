// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// limits are the fields of the configuration, each with a statement after which it
// never binds, and the cases of the suite that are about it.
var limits = []struct{ name, off, cases string }{
	{"admission.concurrency", "cfg.Admission.Concurrency = 1 << 30", "exact-refusals"},
	{"admission.queue", "cfg.Admission.Queue = 1 << 30", "exact-refusals"},
	{"admission.cpu", "cfg.Admission.CPU = 1 << 30", "slow-calls-many-clients,pipelined-slow-calls"},
	{"admission.heavy", "cfg.Admission.Heavy = 1 << 30", "exact-heavy"},
	{"admission.parked", "cfg.Admission.Parked = 1 << 30", ""},
	{"admission.inflight", "cfg.Admission.InFlight = 1 << 30", "small-calls-pipelined"},
	{"admission.wait", "cfg.Admission.Wait = 1 << 50", "batches-of-slow-calls"},
	{"admission.heavy-timeout", "cfg.Admission.HeavyTimeout = 1 << 60", ""},
	{"body.budget", "cfg.Body.Budget = 1 << 50", "exact-bodies"},
	{"body.idle", "cfg.Body.Idle = 1 << 50", "bodies-that-stall"},
	{"body.ws-limit", "cfg.Body.WSLimit = 1 << 50", ""},
	{"reply.max", "cfg.Reply.Max = 0", ""},
	{"reply.budget", "cfg.Reply.Budget = 1 << 50", "ws-blocks-never-read,block-trace"},
	{"sub.events", "cfg.Sub.Events = 1 << 30", ""},
	{"sub.bytes", "cfg.Sub.Bytes = 1 << 50", ""},
	{"sub.conn-bytes", "cfg.Sub.ConnBytes = 1 << 50", ""},
	{"sub.max", "cfg.Sub.Max = 1 << 30", "many-subscriptions"},
	{"filter.max", "cfg.Filter.Max = 1 << 30", ""},
	{"filter.max-per-client", "cfg.Filter.MaxPerClient = 1 << 30", "filter-flood"},
	{"filter.bytes", "cfg.Filter.Bytes = 1 << 50", "filter-overflow"},
	{"filter.total-bytes", "cfg.Filter.TotalBytes = 1 << 50", ""},
	{"conn.max", "cfg.Conn.Max = 1 << 30", ""},
	{"conn.max-per-client", "cfg.Conn.MaxPerClient = 1 << 30", "connections-per-client"},
	{"heavy.jstracers", "cfg.Heavy.JSTracers = true", "javascript-tracer"},
	{"client.trusted-proxies", "cfg.Client.TrustedProxies = nil", "forwarded-clients"},
	{"client.local", "cfg.Client.Local = true", ""},
}

// anchor is where the configuration is complete and valid and nothing has been
// made of it yet.
const anchor = "if err := cfg.validate(env); err != nil {\n\t\treturn nil, err\n\t}\n"

func limitMutants() (out []mutant) {
	for _, l := range limits {
		out = append(out, mutant{name: "limit/" + l.name, cases: l.cases, make: func(tree string) error {
			return rewrite(filepath.Join(tree, "rpc", "guard.go"), func(src string) (string, error) {
				return insertAfter(src, anchor, "\t"+l.off+"\n")
			})
		}})
	}
	return out
}

func insertAfter(src, after, what string) (string, error) {
	if strings.Count(src, after) != 1 {
		return "", errors.New("rpc/guard.go no longer validates the configuration where the mutant expects it")
	}
	return strings.Replace(src, after, after+what, 1), nil
}

// rewrite changes a file of the tree. What is a link to the overlay becomes a file:
// the overlay itself is never touched.
func rewrite(path string, f func(string) (string, error)) error {
	src, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	dst, err := f(string(src))
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(dst), 0o644)
}
