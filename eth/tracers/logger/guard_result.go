// SPDX-License-Identifier: LGPL-3.0-or-later

package logger

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/ethereum/go-ethereum/core/vm"
)

// GuardSize returns the bytes of trace output collected so far.
func (l *StructLogger) GuardSize() int { return l.resultSize }

// GuardSteps returns the number of steps collected so far.
func (l *StructLogger) GuardSteps() int { return len(l.logs) }

// GuardResult returns the same bytes as GetResult, and takes the collected steps
// apart while it copies them: a trace of n bytes needs 2n at its largest moment,
// where encoding/json (which reads every step again, into a buffer that doubles,
// and copies that) needs 4n. The logger is of no use afterwards.
func (l *StructLogger) GuardResult() (json.RawMessage, error) {
	if reason := l.stopReason(); reason != nil {
		return nil, reason
	}
	output := l.output
	if l.err != nil && !errors.Is(l.err, vm.ErrExecutionReverted) {
		output = nil // says nothing about how it failed
	}
	const envelope = len(`{"gas":18446744073709551615,"failed":false,"returnValue":"0x","structLogs":[]}`)
	size := envelope + 2*len(output)
	for _, step := range l.logs {
		size += len(step) + 1
	}
	buf := append(make([]byte, 0, size), `{"gas":`...)
	buf = strconv.AppendUint(buf, l.usedGas, 10)
	buf = strconv.AppendBool(append(buf, `,"failed":`...), l.err != nil)
	buf = hex.AppendEncode(append(buf, `,"returnValue":"0x`...), output)
	buf = append(buf, `","structLogs":[`...)
	for i, step := range l.logs {
		if i > 0 {
			buf = append(buf, ',')
		}
		buf = append(buf, step...)
		l.logs[i] = nil
	}
	l.logs = nil
	return append(buf, ']', '}'), nil
}
