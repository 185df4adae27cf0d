// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"log/slog"

	"github.com/ethereum/go-ethereum/log"
)

// The structured log that upstream writes by. Up to v1.13.15 it is the one of
// golang.org/x/exp, which came before that of the standard library.
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

// rootHandler is the handler of the process's default logger.
func rootHandler() logHandler { return log.Root().Handler() }
