// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
	"github.com/ethereum/go-ethereum/log"
)

// logsPerSecond is how many records of one message a client can make the node write.
const logsPerSecond = 100

// sampledMessages are the beginnings of the messages that clients can cause at will.
// Whatever follows, a method's name say, it is one message: a client must not get
// another hundred by making up another name.
var sampledMessages = [...]string{
	"Served ",
	"RPC method ",
	"Rejected WebSocket connection",
	"Error parsing browser 'Origin' field",
	"Slow RPC subscriber dropped",
	"Tracing failed",
}

// logSampler passes at most logsPerSecond records a second of each sampled message
// and counts the others. The count goes out with the first record of a later second.
type logSampler struct {
	clock mclock.Clock

	mu      sync.Mutex
	windows [len(sampledMessages)]logWindow
}

type logWindow struct {
	began   mclock.AbsTime
	passed  int
	omitted int
}

// allow reports whether a record of the message may pass, and how many were left
// out before it since the last one that told.
func (s *logSampler) allow(msg string) (ok bool, omitted int) {
	which := -1
	for i, beginning := range sampledMessages {
		if strings.HasPrefix(msg, beginning) {
			which = i
			break
		}
	}
	if which < 0 {
		return true, 0
	}
	now := s.clock.Now()

	s.mu.Lock()
	defer s.mu.Unlock()
	w := &s.windows[which]
	if w.began == 0 || now.Sub(w.began) >= time.Second {
		omitted = w.omitted
		*w = logWindow{began: max(now, 1)}
	}
	if w.passed >= logsPerSecond {
		w.omitted++
		return false, 0
	}
	w.passed++
	return true, omitted
}

// sampledHandler is a log handler behind a sampler.
type sampledHandler struct {
	logHandler
	sampler *logSampler
}

// Handle implements slog.Handler.
func (h *sampledHandler) Handle(ctx context.Context, r logRecord) error {
	ok, omitted := h.sampler.allow(r.Message)
	if !ok {
		return nil
	}
	if omitted > 0 {
		r = r.Clone()
		r.AddAttrs(logInt("omitted", omitted))
	}
	return h.logHandler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *sampledHandler) WithAttrs(attrs []logAttr) logHandler {
	return &sampledHandler{h.logHandler.WithAttrs(attrs), h.sampler}
}

// WithGroup implements slog.Handler.
func (h *sampledHandler) WithGroup(name string) logHandler {
	return &sampledHandler{h.logHandler.WithGroup(name), h.sampler}
}

// SampleClientLogs bounds how fast clients of RPC servers can fill the disk with
// log records: at most 100 a second of one message pass, the rest are counted. It
// replaces the process's default logger; loggers made before keep theirs. Calling it
// again does nothing.
func SampleClientLogs() {
	handler := rootHandler()
	if _, done := handler.(*sampledHandler); done || writesByPackageLog(handler) {
		return
	}
	log.SetDefault(log.NewLogger(&sampledHandler{handler, &logSampler{clock: mclock.System{}}}))
}

// writesByPackageLog reports whether a handler is the one that package slog begins with.
// It must stay as it is: it writes by package log, which writes to whatever else becomes
// slog's default, while it holds a lock (go.dev/issue/62424). Processes that set up no log
// of their own have it under v1.13.
func writesByPackageLog(h logHandler) bool { return fmt.Sprintf("%T", h) == "*slog.defaultHandler" }
