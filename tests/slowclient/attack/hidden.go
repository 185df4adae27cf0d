// SPDX-License-Identifier: LGPL-3.0-or-later

package attack

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand"
	"strings"
	"time"

	"github.com/ethereum/go-ethereum/rlp"

	"rpcguard/tests/slowclient/rig"
)

// Work that the name of a method does not show: it hides in a parameter, in the number of
// fields of a query, or in what a contract says when it fails.

func init() {
	add(&Case{
		Name: "log-by-errors", Number: 39, Family: calls,
		Recipe: "8 clients call a contract that reverts with a reason of 1 MB of zeros, for some seconds",
		Bound:  "the log grows by less than 1 MB a second",
		Why:    "what a contract says must not fill the disk",
		Run: func(r *Run) {
			const cc = "0x00000000000000000000000000000000000000cc"
			body := rig.Call(1, "eth_call", rig.Raw(`{"to":"`+cc+`"}`), "latest",
				rig.Raw(`{"`+cc+`":{"code":"0x6308c379a060e01b600052602060045262`+"0f4240"+`60245262`+"0f4284"+`6000fd"}}`))
			before, begun := r.Node.LogSize(), time.Now()
			t := r.repeat(8, r.Seconds(3, 8), body)
			r.Arrived("calls reverted", t.Get("failed"), 3)
			r.AtMost("log a second", float64(r.Node.LogSize()-before)/time.Since(begun).Seconds(), 1<<20, "B")
		},
	}, &Case{
		Name: "graphql-many-calls", Number: 28, Family: calls, Needs: NeedGraphQL | NeedChain,
		Recipe: "GraphQL queries with 20 calls each that loop, from 4 clients",
		Bound:  "polite latency",
		Why:    "a query that runs ten machines has to have ten permits, or one machine",
		Run: func(r *Run) {
			var query strings.Builder
			query.WriteString("{block{")
			for i := range 20 {
				fmt.Fprintf(&query, `a%d:call(data:{data:"0x5b600056"}){gasUsed} `, i)
			}
			query.WriteString("}}")
			ctx, cancel := context.WithTimeout(r.Ctx, r.Seconds(4, 10))
			defer cancel()
			defer r.WorkingMeanwhile("queries")()
			var t Tally
			Parallel(8, func(i int) {
				for ctx.Err() == nil {
					t.Add(r.query(ctx, i%4, query.String()))
				}
			})
			r.Note("refused", float64(t.Get("429")), "")
		},
	}, &Case{
		Name: "blobs-to-prove", Number: 28, Family: calls, Needs: NeedChain,
		Recipe: "8 clients send unsigned transactions with 6 blobs each, of the form before Osaka, for some seconds",
		Bound:  "polite latency",
		Why:    "128 proofs a blob are half a second of all processors, before anybody looks whether it is paid for",
		Run: func(r *Run) {
			body := rig.Call(1, "eth_sendRawTransaction", blobTransaction(6))
			t := r.repeat(8, r.Seconds(4, 10), body)
			r.Arrived("transactions answered", t.Get("failed")+t.Get("busy"), 3)
			r.Note("refused", float64(t.Get("busy")), "")
		},
	})
}

// repeat has clients send a call again and again, and returns what became of each.
func (r *Run) repeat(clients int, d time.Duration, body []byte) *Tally {
	end := time.Now().Add(d)
	t := new(Tally)
	Parallel(clients, func(i int) {
		c := r.HTTP(r.Attacker(i))
		for time.Now().Before(end) && r.Ctx.Err() == nil {
			t.Add(outcome(c.Send(r.Ctx, body)))
		}
	})
	return t
}

// blobTransaction returns a transaction with n random blobs whose proofs are to be computed
// anew. Nothing else in it is right.
func blobTransaction(n int) string {
	var (
		random  = rand.New(rand.NewSource(1))
		nothing = make([]byte, 48)
		blobs   = make([][]byte, n)
		proofs  = make([][]byte, n)
		hashes  = make([][]byte, n)
	)
	for i := range blobs {
		blobs[i], proofs[i], hashes[i] = make([]byte, 128<<10), nothing, append([]byte{1}, make([]byte, 31)...)
		random.Read(blobs[i])
		for at := 0; at < len(blobs[i]); at += 32 {
			blobs[i][at] = 0 // each word is a number below the field's order
		}
	}
	tx := []any{uint64(1337), uint64(0), uint64(1), uint64(1 << 40), uint64(21000), make([]byte, 20), uint64(0), []byte{},
		[]any{}, uint64(1 << 40), hashes, uint64(0), uint64(1), uint64(1)}
	text, err := rlp.EncodeToBytes([]any{tx, blobs, proofs, proofs})
	if err != nil {
		panic(err)
	}
	return "0x03" + hex.EncodeToString(text)
}
