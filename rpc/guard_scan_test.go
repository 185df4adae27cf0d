// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestScanCutsBatches(t *testing.T) {
	for _, c := range []struct {
		in    string
		limit int
		out   string
	}{
		{`[1,2,3]`, 2, `[1,2,3]`}, // one too many stays: upstream answers it
		{`[1,2,3,4]`, 2, `[1,2,3]`},
		{" \n[1,2,3,4]", 1, " \n[1,2]"},
		{`[1,2,3,4]`, 0, `[1,2,3,4]`},
		{`{"a":[1,2,3,4]}`, 1, `{"a":[1,2,3,4]}`},
		{`[{"a":[1,2,3],"b":","},"x,\",y",3,4]`, 2, `[{"a":[1,2,3],"b":","},"x,\",y",3]`},
		{`["\\",2,3]`, 1, `["\\",2]`},
		{`[[1,2],[3,4],[5,6]]`, 1, `[[1,2],[3,4]]`},
		{`[`, 1, `[`},
		{``, 1, ``},
		{`[],[],[],[]`, 1, `[],[],[],[]`}, // invalid as before
		{`[1,2,3,oops`, 1, `[1,2]`},
	} {
		require.Equal(t, c.out, string(cutBatch([]byte(c.in), c.limit)), c.in)
	}
}

// Trap: batch elements built before the batch limit is looked at.
func TestScanKeepsTwiceTheLimitOf5MiB(t *testing.T) {
	msg := append(append([]byte("[0"), bytes.Repeat([]byte(",0"), 2_500_000)...), ']')
	cut := cutBatch(msg, 1000)
	require.Len(t, cut, 2003)
	require.Equal(t, len(cut), cap(cut), "the message can be freed")
	msgs, batch := parseMessage(cut)
	require.True(t, batch)
	require.Len(t, msgs, 1001)
}

func TestScanDeepNesting(t *testing.T) {
	in := strings.Repeat("[", 1_000_000)
	require.Equal(t, in, string(cutBatch([]byte(in), 10)))
}

// FuzzScan: a cut does not depend on how the bytes arrive, and of a valid batch it
// leaves exactly its first limit+1 elements.
func FuzzScan(f *testing.F) {
	for _, s := range []string{`[1,2,3]`, `[{"a":"\",["},[],"\\",null]`, `{"a":[1,2]}`, `[[[`, `"[1,2`} {
		f.Add([]byte(s), uint8(1), uint8(1))
	}
	f.Fuzz(func(t *testing.T, in []byte, limit, step uint8) {
		lim, n := int(limit%8), max(1, int(step))
		want := cutBatch(in, lim)
		s := batchScanner{limit: lim}
		var got []byte
		for rest := in; len(rest) > 0; {
			piece := rest[:min(n, len(rest))]
			rest = rest[len(piece):]
			got = append(got, piece[:s.feed(piece)]...)
		}
		if s.tooMany() {
			got = append(got, ']')
		}
		require.Equal(t, string(want), string(got))
		var elems, cut []json.RawMessage
		if json.Unmarshal(in, &elems) != nil || elems == nil || lim == 0 {
			return
		}
		require.NoError(t, json.Unmarshal(want, &cut))
		require.Len(t, cut, min(len(elems), lim+1))
		for i := range cut {
			require.Equal(t, elems[i], cut[i])
		}
	})
}

func BenchmarkScanBatch(b *testing.B) {
	elem := `{"jsonrpc":"2.0","id":1,"method":"eth_sendRawTransaction","params":["0x` + strings.Repeat("ab", 1000) + `"]}`
	msg := []byte("[" + strings.Repeat(elem+",", 499) + elem + "]")
	b.Run("scan", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(msg)))
		for b.Loop() {
			cutBatch(msg, 1000)
		}
	})
	b.Run("baseline-valid", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(msg)))
		for b.Loop() {
			json.Valid(msg)
		}
	})
}
