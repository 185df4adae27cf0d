// SPDX-License-Identifier: LGPL-3.0-or-later

package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"rpcguard/tests/slowclient/rig"
)

func init() {
	add(&Case{
		Name: "graphql-many-fields", Family: calls, Quick: true, Needs: NeedGraphQL,
		Recipe: "GraphQL queries of 20 KB and more that ask for chainID under 2000 and 6000 names, and one of 300 bytes whose fragments name each other twice, 24 deep",
		Bound:  "each answered within 5 s; memory grows by at most 256 MiB; the processor is idle 1 s after they left",
		Why:    "checking a query must not cost more than answering it",
		Run: func(r *Run) {
			queries := []string{repeated(2000, "chainID"), repeated(6000, "chainID"), doubling(24)}
			var t Tally
			ctx, cancel := context.WithTimeout(r.Ctx, 5*time.Second)
			defer cancel()
			Parallel(len(queries), func(i int) { t.Add(r.query(ctx, i, queries[i])) })
			r.Arrived("queries sent", len(queries)-t.Get("unsent"), len(queries))
			r.AtLeast("answered", float64(len(queries)-t.Get("none")), float64(len(queries)), "")
			cancel()
			r.IdleAfterLeaving(1)
			r.MemoryAtMost(256 * mib)
		},
	}, &Case{
		Name: "graphql-same-data", Family: calls, Needs: NeedGraphQL | NeedChain, Before: fullBlock,
		Recipe: "one GraphQL query of 10 KB that asks for the inputs of the same full block under 200 names",
		Bound:  "memory grows by at most twice the reply budget and 64 MiB",
		Why:    "10 KB must not buy gigabytes",
		Run: func(r *Run) {
			number, _ := r.BigBlock(60)
			before := r.Watch.Peak()
			ctx, cancel := context.WithTimeout(r.Ctx, 35*time.Second)
			defer cancel()
			how := r.query(ctx, 0, repeated(200, fmt.Sprintf("block(number: %q) {transactions {inputData}}", number)))
			r.Check(how != "unsent", "the query was not sent")
			r.Arrived("queries sent", 1, 1)
			r.Note("answered "+how, 1, "")
			r.MemorySince(before, (2*256+64)*mib)
		},
	})
}

// repeated returns a query that asks n times for the same.
func repeated(n int, field string) string {
	var b strings.Builder
	b.WriteString("{")
	for i := range n {
		fmt.Fprintf(&b, "a%d: %s ", i, field)
	}
	return b.String() + "}"
}

// doubling returns a query of 2^depth fields.
func doubling(depth int) string {
	var b strings.Builder
	b.WriteString("{...F0}")
	for i := range depth {
		fmt.Fprintf(&b, " fragment F%d on Query {...F%d ...F%d}", i, i+1, i+1)
	}
	fmt.Fprintf(&b, " fragment F%d on Query {chainID}", depth)
	return b.String()
}

// query asks one and returns the status of the answer, "none" if there was none, "unsent"
// if it could not be asked.
func (r *Run) query(ctx context.Context, client int, query string) string {
	c, err := rig.DialRaw(ctx, r.Node.HTTP, r.Attacker(client))
	if err != nil {
		return "unsent"
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	body, _ := json.Marshal(map[string]string{"query": query})
	if _, err := fmt.Fprintf(c, "POST /graphql HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", r.Node.HTTP, len(body), body); err != nil {
		return "unsent"
	}
	status, _, _, err := c.Response(time.Minute)
	if err != nil {
		return "none"
	}
	return fmt.Sprint(status)
}
