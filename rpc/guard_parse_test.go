// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"encoding/json"
	"math/rand"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// parseSeeds are messages of which each has something of its own that could be read in
// more than one way. TestGuardParseMessageAllocs goes red if the hook in json.go is taken out.
var parseSeeds = []string{
	`{"jsonrpc":"2.0","id":1,"method":"eth_call","params":[{"to":"0x0"},"latest"]}`,
	` { "params" : [ ] , "method" : "m" , "id" : "a\"b" , "jsonrpc" : "2.0" } `,
	`{"jsonrpc":"2.0","method":"m"}`, `{"id":1}`, `{}`, `[]`, `[[]]`, `[{}]`, `null`, `[null]`, `1`, `"x"`, `true`,
	`{"jsonrpc":"1.0","id":1,"method":"m"}`, `{"jsonrpc":2.0,"id":1,"method":"m"}`, `{"jsonrpc":null,"method":null,"id":null,"params":null}`,
	`{"JSONRPC":"2.0","ID":1,"Method":"m"}`, `{"jsonrpc":"2.0","id":1,"id":2,"method":"a","method":"b"}`,
	`{"method":"","method":"b"}`, `{"jsonrpc":"","jsonrpc":"2.0"}`, `{"method":"a","method":""}`, `{"id":null,"id":3}`,
	`{"meth\u006fd":"m","id":1}`, `{"method":"m\u0041","id":1}`, `{"method":"é","id":1}`, "{\"method\":\"\xff\",\"id\":1}", "{\"method\":\"\x7f\"}",
	`{"id":1,"result":{"a":[1,2]}}`, `{"id":1,"error":{"code":1}}`, `{"extra":1,"method":"m"}`, `{"":1,"method":"m"}`,
	`{"id":-1.5e3}`, `{"id":true}`, `{"id":{"a":["]","}"]}}`, `{"params":{"a":"\\"},"id":"\\\""}`, `{"params":"\\\\","id":2}`,
	`{"id":1,"params":["\"]}"]}`, `[{"params":["\"]}]"]}]`,
	`[{"method":"a","id":1},{"method":"b","id":2}]`, `[{"method":"a"},1]`, `[{"method":"a"},{"ID":1}]`, "[ {\"id\":\n1\t} , {\"id\":2\r} ]",
	`[` + strings.Repeat(`{"jsonrpc":"2.0","id":1,"method":"m"},`, 130) + `{"id":7}]`,
}

// sameParse fails unless both functions make the same of a message.
func sameParse(t *testing.T, raw []byte) {
	t.Helper()
	before := string(raw)
	wanted, wantBatch := parseMessageUnguarded(append([]byte(nil), raw...))
	got, batch := parseMessage(raw)
	require.Equal(t, wantBatch, batch, "%q", raw)
	require.Equal(t, wanted, got, "%q", raw)
	require.Equal(t, before, string(raw))
}

func TestGuardParseMessageAsUpstream(t *testing.T) {
	for _, seed := range parseSeeds {
		sameParse(t, []byte(seed))
	}
}

// Random members with random values, any of them unusual, alone and in batches.
func TestGuardParseMessageModel(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	pick := func(of ...string) string { return of[rnd.Intn(len(of))] }
	value := func() string {
		return pick(`1`, `"a"`, `"2.0"`, `null`, `[]`, `[1, {"x":"]"}]`, `{"a":{}}`, `"\""`, `"é"`, `"\\"`, `true`, `-0.1`, `""`)
	}
	message := func() string {
		if rnd.Intn(12) == 0 {
			return value()
		}
		var b strings.Builder
		b.WriteString("{")
		for i := range rnd.Intn(6) {
			if i > 0 {
				b.WriteString(pick(",", " ,", ",\n"))
			}
			switch rnd.Intn(5) {
			case 0:
				b.WriteString(pick(`"jsonrpc"`, `"id"`, `"method"`, `"params"`, `"result"`, `"error"`, `"Id"`, `"i\u0064"`, `"x"`) + ":" + value())
			default:
				b.WriteString(pick(`"jsonrpc":"2.0"`, `"id": 7`, `"method" :"eth_x"`, `"params":[ "a" ]`))
			}
		}
		return b.String() + pick("}", " }")
	}
	plain := 0
	for range 20000 {
		text := message()
		if rnd.Intn(2) == 0 {
			parts := make([]string, rnd.Intn(4))
			for i := range parts {
				parts[i] = message()
			}
			text = "[" + strings.Join(parts, ",") + "]"
		}
		require.True(t, json.Valid([]byte(text)), "%q", text)
		sameParse(t, []byte(text))
		if p := (plainParser{data: []byte(text)}); p.message(new(jsonrpcMessage)) {
			plain++
		}
	}
	require.Greater(t, plain, 500, "the fast path was hardly tried")
}

// The usual messages take the fast path: one allocation for the message, one for its
// method, one for the list.
func TestGuardParseMessageAllocs(t *testing.T) {
	raw := []byte(parseSeeds[0])
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { parseMessage(raw) }), 3.0)
	batch := []byte(parseSeeds[len(parseSeeds)-1])
	require.Less(t, testing.AllocsPerRun(100, func() { parseMessage(batch) }), 150.0) // of 131
}

func FuzzGuardParseMessage(f *testing.F) {
	for _, seed := range parseSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !json.Valid(raw) {
			// Nobody asks that. Upstream's function would not end on some of it ("[}"), so
			// only this one is tried: it must end, without a panic.
			p := plainParser{data: raw}
			if p.next('[') {
				p.batch()
			} else {
				p.message(new(jsonrpcMessage))
			}
			return
		}
		sameParse(t, raw)
	})
}

func BenchmarkGuardParseMessage(b *testing.B) {
	for kind, body := range benchBodies() {
		raw := []byte(body)
		b.Run(kind+"/upstream", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				parseMessageUnguarded(raw)
			}
		})
		b.Run(kind+"/guarded", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				parseMessage(raw)
			}
		})
	}
}

// TestGuardParseIsLinear: 4 MiB of escapes take some milliseconds; looking for the end of
// the string again after each of them would take minutes.
func TestGuardParseIsLinear(t *testing.T) {
	raw := []byte(`[{"jsonrpc":"2.0","id":1,"method":"m","params":["` + strings.Repeat(`\\`, 2<<20) + `"]},{"method":"n"}]`)
	msgs, batch := parseMessage(raw)
	if !batch || len(msgs) != 2 || msgs[1].Method != "n" || len(msgs[0].Params) != 4<<20+4 {
		t.Errorf("%d messages", len(msgs))
	}
}
