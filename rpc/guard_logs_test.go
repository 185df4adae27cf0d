// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"bytes"
	"context"
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
