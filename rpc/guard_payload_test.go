// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"hash/fnv"
	"math/big"
	"testing"
	"testing/synctest"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/stretchr/testify/require"
)

// payloadCases are values that subscriptions send, and some that encode oddly.
func payloadCases() map[string]any {
	header := &types.Header{Number: big.NewInt(17), Difficulty: new(big.Int), Extra: []byte("<&>\u2028")}
	log := &types.Log{Address: common.Address{1}, Topics: []common.Hash{{2}, {3}}, Data: make([]byte, 70), BlockNumber: 5, Removed: true}
	return map[string]any{
		"header":          header,
		"log":             log,
		"pointer pointer": &log,
		"hash":            common.Hash{4},
		"false":           false,
		"nil":             nil,
		"nil pointer":     (*types.Header)(nil),
		"escapes":         "<a href='x'>&\u2028\u2029</a>",
		"spaced":          json.RawMessage("{ \"a\" : [ 1,\t2 ],\n\"b\":\"<\" }"),
		"list":            []map[string]any{{"b": 1, "a": []int{}}},
		"empty list":      []int(nil),
		"large":           bytes.Repeat([]byte{7}, 3*spliceBytes),
	}
}

// TestGuardNotificationBytesAsUpstream compares what the outbox sends with the message
// that upstream builds for the same value.
func TestGuardNotificationBytesAsUpstream(t *testing.T) {
	for name, value := range payloadCases() {
		for _, id := range []ID{"0x1", "0xdeadbeef", `a"<b`} {
			params, err := json.Marshal(subscriptionResultEnc{ID: string(id), Result: value})
			require.NoError(t, err)
			want := appendMessage(nil, &jsonrpcMessage{Version: vsn, Method: "eth" + notificationMethodSuffix, Params: params})

			result, err := EncodeResult(value)
			require.NoError(t, err)
			batch := newFrameBatch(lineFraming)
			batch.message(appendNotificationHead(nil, "eth", id), result, notificationTail)
			got := bytes.Join(batch.buffers(), nil)
			require.Equal(t, string(want)+"\n", string(got), "%s, id %s", name, id)
			require.Equal(t, len(got), batch.size)
			batch.recycle()
		}
	}
}

func TestGuardEncodeResultError(t *testing.T) {
	_, err := EncodeResult(func() {})
	require.Error(t, err)
	_, err = EncodeResult(failingMarshaler{})
	require.Error(t, err)
}

type failingMarshaler struct{}

func (failingMarshaler) MarshalJSON() ([]byte, error) { return nil, errors.New("no") }

// TestGuardReplyBytesAsUpstream does the same for replies, alone and in batches, on
// either side of the size from which results are not copied.
func TestGuardReplyBytesAsUpstream(t *testing.T) {
	msg := func(id string, size int) *jsonrpcMessage {
		return &jsonrpcMessage{Version: vsn, ID: json.RawMessage(id), Result: json.RawMessage(`"` + string(bytes.Repeat([]byte{'x'}, size)) + `"`)}
	}
	failed := errorMessage(errors.New("bad"))
	call := &jsonrpcMessage{Version: vsn, ID: json.RawMessage("9"), Method: "a_b<", Params: json.RawMessage("[1]")}
	msgs := []*jsonrpcMessage{msg("1", 10), failed, msg(`"two"`, spliceBytes), call, msg("3", spliceBytes-3), msg("null", 200000)}

	for _, m := range msgs {
		batch := newFrameBatch(lineFraming)
		batch.reply(m)
		got := bytes.Join(batch.buffers(), nil)
		require.Equal(t, string(appendMessage(nil, m))+"\n", string(got))
		require.Equal(t, len(got), batch.size)
		batch.recycle()
	}
	for n := 0; n <= len(msgs); n++ {
		for _, f := range []framing{lineFraming, wsFraming} {
			batch := newFrameBatch(f)
			batch.raw([]byte("before"))
			batch.replyBatch(msgs[:n])
			got := bytes.Join(batch.buffers(), nil)
			body := appendBatch(nil, msgs[:n])
			want := append(f.begin([]byte("before"), len(body)), body...)
			require.Equal(t, string(f.end(want)), string(got))
			require.Equal(t, len(got), batch.size)
			batch.recycle()
		}
	}
}

// TestGuardPooledBatchKeepsNothing guards against a pool that keeps replies alive.
func TestGuardPooledBatchKeepsNothing(t *testing.T) {
	batch := newFrameBatch(wsFraming)
	batch.message(nil, make([]byte, spliceBytes), "")
	batch.buffers()
	pieces := batch.pieces
	batch.reset()
	for _, p := range pieces[:cap(pieces)] {
		require.Nil(t, p.foreign)
	}
	require.Zero(t, batch.size)
	require.Empty(t, batch.buffers())
}

// TestGuardSharedPayloadsAreNotMutated sends one event to two connections of different
// framing, in pieces, and looks at the event's bytes afterwards.
func TestGuardSharedPayloadsAreNotMutated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var results []json.RawMessage
		for _, size := range []int{1, 100, spliceBytes, 3 * batchBytes} {
			result, err := EncodeResult(bytes.Repeat([]byte{byte(size)}, size))
			require.NoError(t, err)
			results = append(results, result)
		}
		ev := NewEvent(1, results)
		sum := func() uint64 {
			h := fnv.New64()
			for _, r := range ev.results {
				h.Write(r)
			}
			return h.Sum64()
		}
		before := sum()
		for _, f := range []framing{lineFraming, wsFraming} {
			conn := newFakeConn()
			o := newTestOutbox(t, conn, f, testLimits)
			s := liveSub(o, "0x1")
			require.NoError(t, s.notify(ev, true))
			conn.letAll()
			synctest.Wait()
			require.Len(t, conn.messages(f), len(results))
		}
		require.Equal(t, before, sum())
	})
}

// TestGuardEventIsChargedWhatItKeepsAlive: results that share one buffer would keep all
// of it alive for the price of one, so their capacity counts, not their length.
func TestGuardEventIsChargedWhatItKeepsAlive(t *testing.T) {
	buf := make([]byte, 0, 1000)
	ev := NewEvent(0, []json.RawMessage{append(buf, "1"...)})
	require.EqualValues(t, 1000+notificationOverhead, ev.Size())
}

// FuzzGuardWriteBatch splits arbitrary results over messages and checks that the frames
// carry them unchanged.
func FuzzGuardWriteBatch(f *testing.F) {
	f.Add([]byte("abc"), uint16(2), true)
	f.Add(bytes.Repeat([]byte("0123456789"), 7000), uint16(65000), false)
	f.Fuzz(func(t *testing.T, data []byte, size uint16, ws bool) {
		data = bytes.ReplaceAll(data, []byte("\n"), []byte(" "))
		framing := lineFraming
		if ws {
			framing = wsFraming
		}
		var (
			batch = newFrameBatch(framing)
			want  []string
		)
		for len(data) > 0 {
			n := min(len(data), int(size)+1)
			batch.message([]byte("<"), data[:n], ">")
			want = append(want, "<"+string(data[:n])+">")
			data = data[n:]
		}
		got := splitMessages(t, framing, bytes.Join(batch.buffers(), nil))
		require.Equal(t, want, got)
		batch.recycle()
	})
}
