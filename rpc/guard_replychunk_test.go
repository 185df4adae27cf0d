// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// emptyChunks has the process begin with no chunks to be used again.
func emptyChunks() {
	for fullChunks.get() != nil {
	}
}

func TestGuardChunkListBounded(t *testing.T) {
	l := &chunkList{most: 3}
	require.Nil(t, l.get())
	var chunks []*[replyChunk]byte
	for range 5 {
		chunks = append(chunks, new([replyChunk]byte))
	}
	l.put(chunks[:2])
	l.put(chunks[2:])
	require.Len(t, l.free, 3)
	seen := make(map[*[replyChunk]byte]bool)
	for c := l.get(); c != nil; c = l.get() {
		require.False(t, seen[c], "twice the same")
		seen[c] = true
	}
	require.Len(t, seen, 3)
}

// A result holds at most half as much again as its bytes, wherever its chunks are from,
// and what it was charged at its peak is what it held.
func TestGuardReplyChunksFit(t *testing.T) {
	for _, size := range []int{100, 3 << 10, 5 << 10, 20 << 10, 60 << 10, 70 << 10, 140 << 10, 1 << 20} {
		for _, piece := range []int{100, 9 << 10, 40 << 10, 200 << 10} {
			for _, spare := range []int{0, 2} {
				emptyChunks()
				for range spare {
					fullChunks.put([]*[replyChunk]byte{new([replyChunk]byte)})
				}
				var charged int64
				buf := replyBuffer{charge: func(n int64) error { charged += n; return nil }}
				want := bytes.Repeat([]byte("0123456789"), size/10)
				for rest := want; len(rest) > 0; {
					n := min(piece, len(rest))
					buf.Write(rest[:n])
					rest = rest[n:]
				}
				held := int64(0)
				for _, c := range buf.chunks {
					held += int64(cap(c))
				}
				require.Equal(t, charged, held)
				buf.fit()
				held = 0
				for _, c := range buf.chunks {
					held += int64(cap(c))
				}
				name := fmt.Sprintf("%d bytes in pieces of %d, %d chunks to be used again", size, piece, spare)
				if size > spliceBytes { // below, chunks double as they always did
					require.LessOrEqual(t, held, int64(size)*2, name)
				}
				if len(buf.full) > 0 {
					require.LessOrEqual(t, held, int64(size)*3/2+spliceBytes, name)
				}
				got, _ := buf.join()
				require.True(t, bytes.Equal(want, got), name)
			}
		}
	}
}

// Who encodes or joins a large result lets others run after at most 64 KiB; who encodes a
// small one does not.
func TestGuardLargeRepliesYield(t *testing.T) {
	emptyChunks()
	const size = 2 << 20
	yields, before := 0, int64(0)
	buf := replyBuffer{}
	buf.yield = func() {
		yields++
		if grew := buf.size - max(before, yieldBytes); grew > replyChunk {
			t.Fatalf("%d bytes without letting others run", grew)
		}
		before = buf.size
	}
	for buf.size < size {
		buf.Write(make([]byte, 1000))
	}
	require.GreaterOrEqual(t, yields, (size-yieldBytes)/replyChunk-1)
	pieces := len(buf.chunks)
	require.Greater(t, pieces, size/replyChunk-1)
	yields = 0
	buf.join()
	require.Equal(t, pieces, yields)

	small := replyBuffer{yield: func() { t.Error("a small result") }}
	for range 10 {
		small.Write(make([]byte, yieldBytes/10-100))
	}
	require.Greater(t, len(small.chunks), 1)
	small.join()
}

type blockService struct{}

// Rows returns n rows, of about 1 KB each, that tell whose they are.
func (blockService) Rows(who string, n int) []string {
	rows := make([]string, n)
	for i := range rows {
		rows[i] = strings.Repeat(who, 1000/len(who))
	}
	return rows
}

// Replies whose chunks are used again and again, over every transport at once, are what
// they should be. Recycling before the write breaks this at once.
func TestGuardReplyChunksReused(t *testing.T) {
	srv := newPlainServer()
	defer srv.Stop()
	g, err := NewGuard(DefaultGuardConfig, GuardEnv{Procs: 2, HTTPBodyLimit: defaultBodyLimit})
	require.NoError(t, err)
	srv.SetGuard(g)
	require.NoError(t, srv.RegisterName("test", blockService{}))
	httpd, wsd := httptest.NewServer(srv), httptest.NewServer(anyOrigin(srv))
	defer httpd.Close()
	defer wsd.Close()

	emptyChunks()
	var wg sync.WaitGroup
	for i := range 8 {
		url := httpd.URL
		if i%2 == 1 {
			url = "ws" + strings.TrimPrefix(wsd.URL, "http")
		}
		client, err := Dial(url)
		require.NoError(t, err)
		defer client.Close()
		wg.Add(1)
		go func() {
			defer wg.Done()
			who := string(rune('a' + i))
			for round := range 20 {
				n := 8 + 37*round%300
				var rows []string
				if err := client.Call(&rows, "test_rows", who, n); err != nil {
					t.Error(err)
					return
				}
				if len(rows) != n || strings.Trim(strings.Join(rows, ""), who) != "" {
					t.Errorf("client %s was sent rows of others", who)
					return
				}
			}
		}()
	}
	wg.Wait()
	require.NotEmpty(t, fullChunks.free, "chunks came back")
}

// The chunks of a reply that could not be written are left to the collector: what failed
// may still refer to them.
func TestGuardReplyChunksAfterFailure(t *testing.T) {
	emptyChunks()
	chunk := new([replyChunk]byte)
	msg := &jsonrpcMessage{Version: vsn, ID: json.RawMessage("1"), Result: chunk[:spliceBytes],
		guard: &callScope{chunks: [][]byte{chunk[:spliceBytes]}, full: []*[replyChunk]byte{chunk}}}
	scope := &requestScope{g: &Guard{mode: modeTrusted}}
	scope.writer = replyWriter{ResponseWriter: failingResponse{}, scope: scope, begun: true}
	scope.conn.scope, scope.out.scope = scope, scope
	require.ErrorIs(t, scope.conn.writeJSON(t.Context(), msg, false), errNoClient)
	require.Nil(t, fullChunks.get())

	scope.writer.ResponseWriter = &discardResponse{make(http.Header)}
	require.NoError(t, scope.conn.writeJSON(t.Context(), msg, false))
	require.Same(t, chunk, fullChunks.get())
	require.Nil(t, msg.resultChunks())
}

var errNoClient = errors.New("nobody reads")

type failingResponse struct{}

func (failingResponse) Header() http.Header       { return make(http.Header) }
func (failingResponse) Write([]byte) (int, error) { return 0, errNoClient }
func (failingResponse) WriteHeader(int)           {}
