// SPDX-License-Identifier: LGPL-3.0-or-later

package logger

import (
	"encoding/json"

	"github.com/ethereum/go-ethereum/core/vm"
)

// The variant for releases before v1.15.1: the logger keeps copies of stack, memory and
// all storage seen so far for each step, and makes text of them at the very end.

// returnPrefix stands before what a call returned.
const returnPrefix = ""

// stepText returns a step as the text it is in the result.
func (l *StructLogger) stepText(i int) []byte {
	text, err := json.Marshal(&formatLogs(l.logs[i : i+1])[0])
	if err != nil {
		panic(err) // strings and numbers only
	}
	return text
}

// forgetSteps makes room for the next steps. The logger's limit is one of steps, and it
// counts those it has: what was taken away has to be taken off the limit, too.
func (l *StructLogger) forgetSteps() {
	if l.cfg.Limit > 0 {
		if l.cfg.Limit -= len(l.logs); l.cfg.Limit == 0 {
			l.cfg.Limit = -1 // 0 stands for none
		}
	}
	clear(l.logs)
	l.logs = l.logs[:0]
}

// reverted reports whether what a call returned is the reason why it failed, as far as
// the logger can tell: it does not see a wrapped error, such as the machine gives it.
func reverted(err error) bool { return err == vm.ErrExecutionReverted }
