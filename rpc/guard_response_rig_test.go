// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
)

// bulkService answers as much as it is asked for.
type bulkService struct{ calls atomic.Int64 }

// List returns n strings of size bytes each.
func (s *bulkService) List(n, size int) []string {
	s.calls.Add(1)
	list := make([]string, n)
	for i := range list {
		list[i] = strings.Repeat("x", size)
	}
	return list
}

// Text returns one string of size bytes, which is encoded in one go.
func (s *bulkService) Text(size int) string {
	s.calls.Add(1)
	return strings.Repeat("x", size)
}

// Raw returns a result that is encoded already.
func (s *bulkService) Raw(size int) json.RawMessage {
	return json.RawMessage(`"` + strings.Repeat("x", size-2) + `"`)
}

// Fail returns an error with size bytes of data.
func (s *bulkService) Fail(size int) error {
	return &jsonError{Code: 3, Message: "reverted", Data: strings.Repeat("x", size)}
}

// BuildLogs builds n pieces of 1 MB, of which nothing is in its reply. Its name is
// that of a log query, which is metered.
func (s *bulkService) BuildLogs(ctx context.Context, n int) (built int, err error) {
	for ; built < n && err == nil; built++ {
		err = BuildMeterFromContext(ctx).Add(1_000_000)
	}
	s.calls.Add(int64(built))
	return built, err
}

type bulkRig struct {
	*guardRig
	bulk *bulkService
}

func newBulkRig(t *testing.T, change func(*GuardConfig)) *bulkRig {
	t.Helper()
	r := &bulkRig{bulk: new(bulkService)}
	r.guardRig = newGuardRig(t, func(c *GuardConfig) {
		c.Reply.Max, c.Reply.Budget = 4<<20, 16<<20
		c.Admission.CPU, c.Admission.Heavy = 4, 4
		if change != nil {
			change(c)
		}
	})
	if err := r.srv.RegisterName("bulk", r.bulk); err != nil {
		t.Fatal(err)
	}
	return r
}

func bulkCall(id int, method string, args ...int) string {
	params, _ := json.Marshal(args)
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"bulk_%s","params":%s}`, id, method, params)
}

// drained waits until no reply is held and all books add up.
func (r *bulkRig) drained() map[string]bookTotals {
	r.t.Helper()
	books := r.idle()
	r.until("no reply is held", func() bool { return r.g.replies.status().InUse == 0 })
	return books
}

// fill takes all of the large part for the client that the test is, which cannot
// displace itself.
func (r *bulkRig) fill() (release func()) {
	r.t.Helper()
	var (
		all []*replyCharge
		key = r.g.keys.keyFor("127.0.0.1:1", nil)
	)
	for i := 0; ; i++ {
		// A method of its own each, so that none is expected to be large.
		c, err := r.g.replies.reserve(key, replyKind{method: fmt.Sprint("fill", i)})
		if err != nil {
			r.t.Fatal(err)
		}
		if c.encode(128<<10) != nil {
			c.release()
			break
		}
		c.settle(128<<10, nil)
		all = append(all, c)
	}
	return func() {
		for _, c := range all {
			c.release()
		}
	}
}
