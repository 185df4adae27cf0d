// SPDX-License-Identifier: LGPL-3.0-or-later

package attack

import (
	"bytes"
	"fmt"
	"strings"

	"rpcguard/tests/slowclient/rig"
)

func nonsense(r *Run) {
	c := r.HTTP(r.Attacker(0))
	names := func() int { m, _ := r.Node.Metrics(); return len(m) }
	before := names()

	id := fmt.Sprintf(`{"jsonrpc":"2.0","id":"%s","method":"eth_blockNumber"}`, strings.Repeat("x", 4*mib))
	status, _, body, err := c.Post(r.Ctx, []byte(id))
	if r.Check(err == nil, "4 MiB id: %v", err) {
		r.Arrived("answers to a 4 MiB id", 1, 1)
		r.AtMost("answer to a 4 MiB id", float64(len(body)), 64<<10, "B")
		_ = status
	}
	_, _, body, err = c.Post(r.Ctx, bytes.Repeat([]byte("["), mib))
	if r.Check(err == nil, "a million brackets: %v", err) {
		r.Check(bytes.Contains(body, []byte(`"error"`)) || len(body) == 0, "a million brackets: %.100q", body)
	}
	each := r.Scale(100, 500)
	Parallel(20, func(i int) {
		for k := range each {
			_, reply, err := c.Send(r.Ctx, rig.Call(1, fmt.Sprintf("nobody_knows%d", i*each+k)))
			if err != nil || reply.Code() != -32601 {
				r.Break("an unknown method is answered %v %v", reply, err)
				return
			}
		}
	})
	if before > 0 {
		r.AtMost("new metrics", float64(names()-before), 60, "")
	}
	r.MemoryAtMost(200 * mib)
}
