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

// logAttrBytes is how long a value in one of them may be. The error of a call that has
// failed says what its contract said, or repeats the parameters: a reason of 1 MB that a
// request of 300 bytes makes is 4 MB in the log, escaped.
const logAttrBytes = 512

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

// allow reports whether a record of the message may pass, whether it is one of the sampled
// ones, and how many were left out before it since the last one that told.
func (s *logSampler) allow(msg string) (ok, sampled bool, omitted int) {
	which := -1
	for i, beginning := range sampledMessages {
		if strings.HasPrefix(msg, beginning) {
			which = i
			break
		}
	}
	if which < 0 {
		return true, false, 0
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
		return false, true, 0
	}
	w.passed++
	return true, true, omitted
}

// sampledHandler is a log handler behind a sampler.
type sampledHandler struct {
	logHandler
	sampler *logSampler
}

// Handle implements slog.Handler.
func (h *sampledHandler) Handle(ctx context.Context, r logRecord) error {
	ok, sampled, omitted := h.sampler.allow(r.Message)
	if !ok {
		return nil
	}
	if sampled {
		r = cutRecord(r)
	}
	if omitted > 0 {
		r = r.Clone()
		r.AddAttrs(logInt("omitted", omitted))
	}
	return h.logHandler.Handle(ctx, r)
}

// cutRecord returns a record whose long values are cut to logAttrBytes.
func cutRecord(r logRecord) logRecord {
	long := false
	r.Attrs(func(a logAttr) bool {
		long = len(textOf(a)) > logAttrBytes
		return !long
	})
	if !long {
		return r
	}
	cut := newLogRecord(r.Time, r.Level, r.Message, r.PC)
	r.Attrs(func(a logAttr) bool {
		if text := textOf(a); len(text) > logAttrBytes {
			a = logString(a.Key, fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(text[:logAttrBytes], ""), len(text)))
		}
		cut.AddAttrs(a)
		return true
	})
	return cut
}

// textOf returns a value that is text of any length, and nothing for others.
func textOf(a logAttr) (text string) {
	defer func() {
		if recover() != nil {
			text = "" // a nil pointer, of which the handler makes something short
		}
	}()
	switch v := a.Value.Any().(type) {
	case string:
		return v
	case error:
		return v.Error()
	case fmt.Stringer:
		return v.String()
	}
	return ""
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
