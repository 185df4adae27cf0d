// SPDX-License-Identifier: LGPL-3.0-or-later

package logger

// stopReason returns why the trace was stopped, nil if it was not.
func (l *StructLogger) stopReason() error { return l.reason }
