// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"testing"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
)

// encodeApart takes a value apart however small it is worth.
func encodeApart(v any) ([]byte, error) {
	var buf replyBuffer
	if err := newReplyEncoder(&buf).encode(v); err != nil {
		return nil, err
	}
	return buf.join()
}

// checkEncode compares with what encoding/json makes of v.
func checkEncode(t *testing.T, v any) {
	t.Helper()
	want, wantErr := json.Marshal(v)
	got, err := encodeApart(v)
	if fmt.Sprint(err) != fmt.Sprint(wantErr) {
		t.Fatalf("%T: error %v, json says %v", v, err, wantErr)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%T:\n got %.300s\nwant %.300s", v, got, want)
	}
}

type (
	ptrMarshaler struct{ n int }
	valMarshaler struct{ n int }
	textKey      string
	streamed     struct{ n int }
	badMarshaler struct{}
)

func (p *ptrMarshaler) MarshalJSON() ([]byte, error) {
	return []byte(fmt.Sprintf(`{ "p": %d}`, p.n)), nil
}
func (v valMarshaler) MarshalJSON() ([]byte, error) { return []byte(fmt.Sprintf(`"<%d>"`, v.n)), nil }
func (k textKey) MarshalText() ([]byte, error)      { return []byte("k" + string(k)), nil }
func (badMarshaler) MarshalJSON() ([]byte, error)   { return nil, errors.New("will not") }
func (s *streamed) MarshalJSON() ([]byte, error)    { return []byte(fmt.Sprintf(`{"n":%d}`, s.n)), nil }
func (s *streamed) StreamReply(w io.Writer) error {
	_, err := fmt.Fprintf(w, `{"n":%d}`, s.n)
	return err
}

func TestGuardEncodeEqualsJSON(t *testing.T) {
	long := func(n int) (l []any) {
		for i := 0; i < n; i++ {
			l = append(l, common.BigToHash(common.Big1))
		}
		return l
	}
	logs := make([]*types.Log, 500)
	for i := range logs {
		logs[i] = &types.Log{Topics: make([]common.Hash, i%5), Data: make([]byte, i*7)}
	}
	logs[17] = nil
	var nilStreamed *streamed
	for _, v := range []any{
		nil, 1, "a<b>\u2028", []int(nil), []int{}, []int{1}, []int{1, 2, 3, 4, 5},
		[]byte("bytes are a string"), hexutil.Bytes{1, 2, 3, 4, 5, 6}, json.RawMessage(`[ 1, 2 ]`),
		logs, logs[:4], []types.Log{*logs[3], *logs[4], *logs[5], *logs[6]},
		long(3), long(1000),
		[]ptrMarshaler{{1}, {2}, {3}, {4}}, []valMarshaler{{1}, {2}, {3}, {4}},
		[]*ptrMarshaler{{1}, nil, {3}, {4}}, []*valMarshaler{{1}, nil, {3}, {4}}, []*badMarshaler{nil, nil, nil, {}},
		[]any{ptrMarshaler{1}, &ptrMarshaler{2}, valMarshaler{3}, nil, "x"},
		[][]int{nil, {}, {1, 2}, {3}, {4, 5, 6, 7, 8}},
		[]json.RawMessage{[]byte(`{ "a" : "<" }`), []byte(`1`), nil, []byte("2")},
		[]*streamed{{1}, nil, {2}}, []*streamed{}, []*streamed(nil), &streamed{3}, nilStreamed, []ReplyStreamer{nil, &streamed{4}},
		map[string]any(nil), map[string]any{}, map[string]any{"b": 1, "a": "x", "<&>": nil},
		map[string]any{"transactions": long(200), "number": 7, "uncles": []common.Hash{}, "zeta": []any{}, "\xff": 1},
		map[string]map[string]map[string]*types.Log{
			"pending": {"0xaa": {"0": logs[1], "1": logs[2], "10": logs[3], "2": nil, "3": logs[4]}, "0xbb": nil},
			"queued":  {},
		},
		map[textKey]int{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}, map[int]any{1: long(10)},
		map[string][]any{"d": long(4), "c": long(5), "b": nil, "a": {}},
		[]any{1, 2, 3, func() {}, 5}, []badMarshaler{{}, {}, {}, {}}, map[string]any{"l": long(4), "z": badMarshaler{}},
		[]float64{1e21, 1e-7, 0.1, 3, 4},
	} {
		checkEncode(t, v)
	}
}

// Random values of the shapes that are taken apart.
func TestGuardEncodeRandomEqualsJSON(t *testing.T) {
	const seed = 11
	rng := rand.New(rand.NewSource(seed))
	var value func(depth int) any
	value = func(depth int) any {
		n := rng.Intn(6)
		switch k := rng.Intn(9); {
		case k == 0 && depth > 0:
			m := make(map[string]any)
			for i := 0; i < n; i++ {
				m[randomText(rng)] = value(depth - 1)
			}
			return m
		case k == 1 && depth > 0:
			l := make([]any, n*rng.Intn(20))
			for i := range l {
				l[i] = rng.Int()
				if i < 4 {
					l[i] = value(depth - 1)
				}
			}
			return l
		case k == 2 && depth > 0:
			m := make(map[string]map[string]any)
			for i := 0; i < n; i++ {
				m[randomText(rng)] = map[string]any{randomText(rng): value(depth - 1)}
			}
			return m
		case k == 3:
			return make(hexutil.Bytes, rng.Intn(1<<uint(rng.Intn(16))))
		case k == 4:
			return &types.Log{Data: make([]byte, rng.Intn(1000))}
		case k == 5:
			return []string{randomText(rng), randomText(rng), randomText(rng), randomText(rng)}
		case k == 6:
			return ptrMarshaler{n}
		case k == 7:
			return rng.Int63()
		default:
			return randomText(rng)
		}
	}
	for i := 0; i < 3000; i++ {
		if !t.Run(fmt.Sprintf("seed%d-%d", seed, i), func(t *testing.T) { checkEncode(t, value(3)) }) {
			return
		}
	}
}

func randomText(rng *rand.Rand) string {
	b := make([]byte, rng.Intn(12))
	for i := range b {
		b[i] = "ab<>&\"\\\n\x00\xff\xe2\x80\xa8z"[rng.Intn(14)]
	}
	return string(b)
}

// Whatever JSON a value came from, taken apart it is encoded as whole.
func FuzzGuardEncode(f *testing.F) {
	f.Add([]byte(`{"a":[1,2,3,4,5,{"b":[null,"<",1e9,[],{}]}],"c":{"d":{"e":"f"}}}`))
	f.Add([]byte(`[[],[[]],{"":""},"\u2028",0.1,null,true]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var v any
		if json.Unmarshal(data, &v) != nil {
			t.Skip()
		}
		checkEncode(t, v)
		if l, ok := v.([]any); ok {
			raw := make([]json.RawMessage, len(l))
			for i := range l {
				raw[i], _ = json.Marshal(l[i])
			}
			checkEncode(t, raw)
		}
	})
}

// The trap: charging only at the write. Here a list of 20 MB meets 3 MiB of room.
func TestGuardEncodeStopsInTheMiddle(t *testing.T) {
	logs := make([]*types.Log, 200)
	encoded := 0
	for i := range logs {
		logs[i] = &types.Log{Data: make([]byte, 50_000)}
	}
	list := make([]countedLog, len(logs))
	for i := range list {
		list[i] = countedLog{logs[i], &encoded}
	}
	var held int64
	full := errors.New("full")
	buf := &replyBuffer{charge: func(n int64) error {
		if held+n > 3<<20 {
			return full
		}
		held += n
		return nil
	}}
	if err := newReplyEncoder(buf).encode(list); !errors.Is(err, full) {
		t.Fatalf("error %v", err)
	}
	if encoded > 40 {
		t.Fatalf("%d of 200 elements encoded, 30 fit", encoded)
	}
	if _, err := buf.Write([]byte("x")); !errors.Is(err, full) {
		t.Fatalf("after the refusal a write says %v", err)
	}
}

type countedLog struct {
	log *types.Log
	n   *int
}

func (c countedLog) MarshalJSON() ([]byte, error) {
	*c.n++
	return c.log.MarshalJSON()
}

// What is charged is what is held, to the byte, and no more than 64 KiB beyond
// what was asked for.
func TestGuardEncodeChargesWhatItHolds(t *testing.T) {
	const seed = 3
	rng := rand.New(rand.NewSource(seed))
	for i := 0; i < 300; i++ {
		var charged int64
		buf := &replyBuffer{charge: func(n int64) error { charged += n; return nil }}
		var want []byte
		for j := rng.Intn(40); j >= 0; j-- {
			p := make([]byte, rng.Intn(1<<uint(rng.Intn(18))))
			rng.Read(p)
			want = append(want, p...)
			if len(want) == len(p) && rng.Intn(2) == 0 {
				buf.adopt(p) // a result that came encoded is the first piece, and the only large one
			} else {
				buf.Write(p)
			}
		}
		var held int64
		for _, c := range buf.chunks {
			held += int64(cap(c))
		}
		if held != charged || charged > buf.size+replyChunk || buf.size != int64(len(want)) {
			t.Fatalf("seed %d round %d: %d bytes, %d held, %d charged", seed, i, buf.size, held, charged)
		}
		if got, _ := buf.join(); !bytes.Equal(got, want) {
			t.Fatalf("seed %d round %d: content differs", seed, i)
		}
	}
}

func TestGuardEncodeMax(t *testing.T) {
	list := make([]string, 100)
	text, _ := json.Marshal(list)
	for _, max := range []int64{int64(len(text)), int64(len(text)) + 1, 0} {
		if err := newReplyEncoder(&replyBuffer{max: max}).encode(list); err != nil {
			t.Errorf("%d bytes against a bound of %d: %v", len(text), max, err)
		}
	}
	err := newReplyEncoder(&replyBuffer{max: int64(len(text)) - 1}).encode(list)
	if !errors.Is(err, errReplyTooLarge) {
		t.Errorf("beyond the bound: %v", err)
	}
}

func benchmarkEncode(b *testing.B, v any) {
	b.Run("stock", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			out, err := json.Marshal(v)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(out)))
		}
	})
	b.Run("guard", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var size int64
			if !worthStreaming(v) {
				out, _ := json.Marshal(v)
				size = int64(len(out))
			} else {
				buf := new(replyBuffer)
				if err := newReplyEncoder(buf).encode(v); err != nil {
					b.Fatal(err)
				}
				size = buf.size
			}
			b.SetBytes(size)
		}
	})
}

func BenchmarkGuardEncodeLogs(b *testing.B) {
	logs := make([]*types.Log, 5000)
	for i := range logs {
		logs[i] = &types.Log{Topics: make([]common.Hash, 3), Data: make([]byte, 64)}
	}
	benchmarkEncode(b, logs)
}

func BenchmarkGuardEncodeBlockOfHashes(b *testing.B) {
	benchmarkEncode(b, testBlock(200, func(i int) any { return common.Hash{byte(i)} }))
}

func BenchmarkGuardEncodeFullBlock(b *testing.B) {
	benchmarkEncode(b, testBlock(200, func(i int) any {
		return &types.Log{Topics: make([]common.Hash, 4), Data: make([]byte, 100_000)}
	}))
}

func BenchmarkGuardEncodeSmall(b *testing.B) {
	benchmarkEncode(b, testBlock(0, nil))
}

func testBlock(n int, tx func(i int) any) map[string]any {
	m := make(map[string]any)
	for i := 0; i < 20; i++ {
		m[fmt.Sprint("field", i)] = common.Hash{byte(i)}
	}
	txs := make([]any, n)
	for i := range txs {
		txs[i] = tx(i)
	}
	m["transactions"] = txs
	m["uncles"] = []common.Hash{}
	return m
}
