// SPDX-License-Identifier: LGPL-3.0-or-later

package logger

// stopReason returns why the trace was stopped, nil if it was not. Up to v1.17.3 the
// field is an error.
func (l *StructLogger) stopReason() error {
	if reason := l.reason.Load(); reason != nil {
		return *reason
	}
	return nil
}
