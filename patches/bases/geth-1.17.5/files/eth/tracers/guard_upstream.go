// SPDX-License-Identifier: LGPL-3.0-or-later

package tracers

import "github.com/ethereum/go-ethereum/core/tracing"

// What upstream's releases spell differently, in one place. This is the variant for
// releases up to v1.17.5 and the forks that stand on them.

// meterHooksV2 does nothing: these hooks came with v1.17.6.
func meterHooksV2(*tracing.Hooks, *traceMeter) {}
