// SPDX-License-Identifier: LGPL-3.0-or-later

package logger

import "github.com/ethereum/go-ethereum/core/vm/runtime"

// execute runs a program; a fork asks for more.
func execute(code []byte, cfg *runtime.Config) { runtime.Execute(code, nil, cfg) }
