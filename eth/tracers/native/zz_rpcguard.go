// SPDX-License-Identifier: LGPL-3.0-or-later

package native

import "github.com/ethereum/go-ethereum/eth/tracers"

// The tracers of this package register themselves in init functions, which run in the
// order of their files' names: hence the name of this one (TestGuardTracersStop).
func init() { tracers.CompleteStops() }
