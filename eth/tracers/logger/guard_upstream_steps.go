// SPDX-License-Identifier: LGPL-3.0-or-later

package logger

import (
	"errors"

	"github.com/ethereum/go-ethereum/core/vm"
)

// The form in which the logger keeps its steps differs between releases.

// returnPrefix stands before what a call returned.
const returnPrefix = "0x"

// stepText returns a step as the text it is in the result, and lets go of it.
func (l *StructLogger) stepText(i int) []byte {
	text := l.logs[i]
	l.logs[i] = nil
	return text
}

// forgetSteps makes room for the next steps.
func (l *StructLogger) forgetSteps() { l.logs = l.logs[:0] }

// reverted reports whether what a call returned is the reason why it failed.
func reverted(err error) bool { return errors.Is(err, vm.ErrExecutionReverted) }
