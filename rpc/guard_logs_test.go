// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
	"github.com/ethereum/go-ethereum/log"
)

func TestClientLogsAreSampled(t *testing.T) {
	var out bytes.Buffer
	clock := new(mclock.Simulated)
	clock.Run(time.Second)
	handler := &sampledHandler{log.LogfmtHandlerWithLevel(&out, log.LevelInfo), &logSampler{clock: clock}}
	logger := log.NewLogger(handler).With("conn", "1.2.3.4")
	for i := range 5000 {
		logger.Warn(fmt.Sprintf("Served eth_invented%d", i)) // names do not make messages
		logger.Info("Imported new chain segment")
	}
	if n := strings.Count(out.String(), "Served"); n != logsPerSecond {
		t.Errorf("%d records of one message in a second", n)
	}
	if n := strings.Count(out.String(), "Imported"); n != 5000 {
		t.Errorf("%d of 5000 records that no client causes", n)
	}
	out.Reset()
	clock.Run(time.Second)
	logger.Warn("Served eth_call")
	logger.Warn("Served eth_call")
	if got := out.String(); strings.Count(got, "omitted=4900") != 1 || !strings.Contains(got, "conn=1.2.3.4") {
		t.Errorf("the next second: %s", got)
	}
	if ctx := context.Background(); !handler.Enabled(ctx, log.LevelInfo) || handler.Enabled(ctx, log.LevelDebug) {
		t.Error("levels are not the inner handler's")
	}
}

// What a client has a contract say, or sends as a parameter, is cut in the log.
func TestClientLogsAreCut(t *testing.T) {
	var out bytes.Buffer
	handler := &sampledHandler{log.LogfmtHandlerWithLevel(&out, log.LevelInfo), &logSampler{clock: new(mclock.Simulated)}}
	long := strings.Repeat("\x00", 1<<20)
	for _, value := range []any{long, errors.New(long), idForLog{json.RawMessage(long)}} {
		out.Reset()
		log.NewLogger(handler).Warn("Served eth_call", "reqid", 7, "err", value, "errdata", "0x08c379a0")
		if got := out.String(); len(got) > 4*logAttrBytes+300 || !strings.Contains(got, "reqid=7") || !strings.Contains(got, "errdata=0x08c379a0") {
			t.Errorf("%T: %d bytes: %.300s", value, len(got), got)
		}
	}
	out.Reset()
	log.NewLogger(handler).Warn("Imported new chain segment", "err", long)
	if out.Len() < len(long) {
		t.Errorf("what no client causes was cut to %d bytes", out.Len())
	}
}
