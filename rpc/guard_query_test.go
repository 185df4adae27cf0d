// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestQueryFields(t *testing.T) {
	for query, want := range map[string]int{
		``:              0,
		`{}`:            0,
		`{block{hash}}`: 2,
		`query Q($a: Long = 3) {block(number: $a) {hash number}}`:                3,
		`{a: chainID, b: chainID}`:                                               2,
		`{block(x: "}}}{ a b c") {hash @include(if: $f) number}}`:                3,
		"{ chainID # } a b c\n syncing{startingBlock} }":                         3,
		`{logs(filter: {addresses: ["0xa", "0xb"], topics: [["""x"]]}) {data}}`:  2,
		`{block{... on Block {hash}}}`:                                           3,
		`{block{... @include(if: true) {hash} ... {number}}}`:                    5,
		`fragment A on Account {balance code} {block{a: account{...A} hash}}`:    6 + 2,
		`{...A} fragment A on Query {...B ...B} fragment B on Query {...C ...C}`: 1 + 2 + 4 + 2 + 2,
		`{...A} fragment A on Query {chainID ...A}`:                              3 + 2,
		`query A {chainID} query B {gasPrice syncing{startingBlock}}`:            4,
		`mutation {sendRawTransaction(data: "0x\"{a b}")}`:                       1,
		`{` + strings.Repeat("chainID ", 5000) + `}`:                             maxQueryFields + 1,
		`{` + strings.Repeat(" chainID", maxQueryFields) + `}`:                   maxQueryFields,
		"{a\u00e9b _c d1 \ufeff}":                                                3,
		`}}}{chainID}`:                                                           1,
		`{block{hash`:                                                            2,
	} {
		require.Equal(t, want, countFields(query), "%.100s", query)
	}
	// Thirty fragments that name the next one twice are 2^30 fields.
	var b strings.Builder
	b.WriteString("{...F0}")
	for i := range 60 {
		fmt.Fprintf(&b, "fragment F%d on Query {...F%d ...F%d}", i, i+1, i+1)
	}
	b.WriteString("fragment F60 on Query {chainID}")
	require.Equal(t, maxQueryFields+1, countFields(b.String()))
}

// A random query costs what it was made to cost.
func TestQueryFieldsModel(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	junk := []string{" ", ",", "\n", "# } { ...X \"\n", "\t"}
	for range 2000 {
		var write func(b *strings.Builder, depth int) int
		frags := rnd.Intn(4)
		costs := make([]int, frags)
		next := frags // fragments from this one on may be named
		write = func(b *strings.Builder, depth int) (cost int) {
			b.WriteString("{")
			for range rnd.Intn(4) {
				b.WriteString(junk[rnd.Intn(len(junk))])
				cost++
				switch rnd.Intn(6) {
				case 0:
					b.WriteString(`alias: name(x: "{(", y: {z: [1, "\")}"]})`)
				case 1:
					b.WriteString("... on Type @a(b: 1) ")
					cost += write(b, depth+1)
				case 2:
					b.WriteString("... ")
					cost += write(b, depth+1)
				case 3:
					if next < frags {
						f := next + rnd.Intn(frags-next)
						fmt.Fprintf(b, "...F%d @skip(if: $x)", f)
						cost += costs[f]
						break
					}
					fallthrough
				default:
					b.WriteString("field")
					if depth < 4 && rnd.Intn(2) == 0 {
						cost += write(b, depth+1)
					}
				}
				b.WriteString(" ")
			}
			b.WriteString("}")
			return cost
		}
		var defs []string
		want := 0
		for i := frags - 1; i >= 0; i-- {
			var b strings.Builder
			fmt.Fprintf(&b, "fragment F%d on Type ", i)
			next = i + 1
			costs[i] = write(&b, 0)
			defs = append(defs, b.String())
			want += countFields(strings.Join(defs[len(defs)-1:], "")) // without what it names
		}
		next = 0
		var b strings.Builder
		b.WriteString("query Q($a: T = {b: 1}) ")
		want += write(&b, 0)
		defs = append(defs, b.String())
		rnd.Shuffle(len(defs), func(i, j int) { defs[i], defs[j] = defs[j], defs[i] })
		query := strings.Join(defs, "\n")
		require.Equal(t, min(want, maxQueryFields+1), countFields(query), query)
	}
}

func FuzzQueryFields(f *testing.F) {
	f.Add(`query Q($a: Long = 3) {block(number: $a) {...F}} fragment F on Block {hash}`)
	f.Add(`{a(b: "\"` + "\n" + `# {(`)
	f.Fuzz(func(t *testing.T, query string) {
		if n := countFields(query); n < 0 || n > maxQueryFields+1 || n > len(query)*len(query) {
			t.Fatal(n)
		}
	})
}

// The library is not asked about a query of too many fields, and one that was let through
// holds what comparing its fields takes.
func TestGuardQueryOfManyFields(t *testing.T) {
	for _, dry := range []bool{false, true} {
		cfg := DefaultGuardConfig
		cfg.DryRun = dry
		g, err := NewGuard(cfg, GuardEnv{Procs: 2, HTTPBodyLimit: 5 << 20})
		require.NoError(t, err)
		asked := 0
		var held int64
		srv := newTestHandlerServer(t, g, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked++
			held = g.replyBytes()
			io.WriteString(w, "ok")
		}))
		ask := func(fields int) (int, string) {
			body, _ := json.Marshal(map[string]any{"query": "{" + strings.Repeat("chainID ", fields) + "}"})
			resp, err := http.Post(srv, "application/json", strings.NewReader(string(body)))
			require.NoError(t, err)
			defer resp.Body.Close()
			b, _ := io.ReadAll(resp.Body)
			return resp.StatusCode, string(b)
		}
		status, body := ask(maxQueryFields)
		require.Equal(t, 200, status)
		require.Equal(t, "ok", body)
		if !dry {
			require.GreaterOrEqual(t, held, int64(maxQueryFields*maxQueryFields/2*pairSize))
		}
		status, body = ask(maxQueryFields + 1)
		if dry {
			require.Equal(t, 200, status)
			require.Equal(t, 2, asked)
			continue
		}
		require.Equal(t, 400, status)
		require.JSONEq(t, `{"errors":[{"message":"query of more than 1000 fields"}]}`, body)
		require.Equal(t, 1, asked)
		require.Zero(t, g.replyBytes())
		b := g.admission.report().Books["compute"]
		require.EqualValues(t, []any{b.Arrived, b.Served, b.Failed}, []any{uint64(2), uint64(1), uint64(1)}, "%+v", b)
	}
}

// A query whose meter says stop ends, and its reply is the meter's error whatever it wrote.
func TestGuardQueryStopsBuilding(t *testing.T) {
	cfg := DefaultGuardConfig
	cfg.Reply.Max = 1 << 20
	g, err := NewGuard(cfg, GuardEnv{Procs: 2, HTTPBodyLimit: 5 << 20})
	require.NoError(t, err)
	addr := newTestHandlerServer(t, g, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m := BuildMeterFromContext(r.Context())
		for m.Add(replyStep) == nil {
		}
		<-r.Context().Done()
		io.WriteString(w, "half of it")
	}))
	resp, err := http.Post(addr, "application/json", strings.NewReader(`{"query":"{chainID}"}`))
	require.NoError(t, err)
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	require.Equal(t, 503, resp.StatusCode)
	require.Contains(t, string(body), "-32003")
	require.NotContains(t, string(body), "half")
	require.Zero(t, g.replyBytes())
	b := g.admission.report().Books["compute"]
	require.True(t, b.Arrived == 1 && b.Failed == 1, "%+v", b)
}
