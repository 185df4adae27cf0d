// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ethereum/go-ethereum/common/mclock"
	"github.com/ethereum/go-ethereum/log"
)

// BenchmarkRefusedEntry is what one refused entry of a batch costs, all of its way
// through the server, beside an entry that names an unknown method.
func BenchmarkRefusedEntry(b *testing.B) {
	before := log.Root()
	defer log.SetDefault(before)
	log.SetDefault(log.NewLogger(&sampledHandler{
		log.NewTerminalHandlerWithLevel(io.Discard, log.LevelInfo, false), &logSampler{clock: mclock.System{}},
	}))
	const entries = 1000
	for _, test := range []struct{ name, method string }{{"refused", "test_fail"}, {"unknown", "test_nothing"}} {
		b.Run(test.name, func(b *testing.B) {
			cfg := DefaultGuardConfig
			cfg.Admission.Concurrency, cfg.Admission.Queue = 1, 0
			g, err := NewGuard(cfg, GuardEnv{Procs: 2, HTTPBodyLimit: defaultBodyLimit})
			if err != nil {
				b.Fatal(err)
			}
			srv := newPlainServer()
			srv.SetGuard(g)
			srv.RegisterName("test", newSlowService())
			held := &gateCall{class: classNormal}
			g.admission.gate.acquire(context.Background(), held)
			defer held.release()
			body := `[` + strings.TrimSuffix(strings.Repeat(call(1, test.method)+`,`, entries), ",") + `]`
			b.ReportAllocs()
			for b.Loop() {
				req := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
				req.Header.Set("content-type", contentType)
				srv.ServeHTTP(httptest.NewRecorder(), req)
			}
			perEntry := float64(b.Elapsed().Nanoseconds()) / float64(b.N) / entries
			b.ReportMetric(perEntry, "ns/entry")
			b.ReportMetric(1e9/perEntry, "entries/s")
		})
	}
}
