// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"log/slog"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/log"
)

// firstHandler is what package slog begins with, before anybody sets another.
var firstHandler = slog.Default().Handler()

// Trap: a process whose log is Go's own stops at its first record after the sampling is
// put around it, for package log and the default of package slog then write to each other.
func TestSamplingLeavesGosOwnLogAlone(t *testing.T) {
	before, beforeSlog := log.Root(), slog.Default()
	log.SetDefault(log.NewLogger(firstHandler))
	SampleClientLogs()
	done := make(chan struct{})
	go func() {
		defer close(done)
		log.Info("A record") // may be the last there is
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("the log is stuck") // and cannot be set back
	}
	log.SetDefault(before)
	slog.SetDefault(beforeSlog)
}
