// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import "golang.org/x/exp/slog"

// The structured log that upstream writes by, before the standard library had one.
type (
	logHandler = slog.Handler
	logRecord  = slog.Record
	logAttr    = slog.Attr
)

var (
	logInt       = slog.Int
	logString    = slog.String
	newLogRecord = slog.NewRecord
)

// rootHandler is the handler of the process's default logger. A logger does not tell
// its handler here; upstream sets the same one as that of package slog.
func rootHandler() logHandler { return slog.Default().Handler() }
