// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import "github.com/ethereum/go-ethereum/metrics"

// What is used of a counter or gauge of geth's metrics package. Up to v1.14 those
// are interfaces there and pointers to structs since: a field of these types holds
// either, so that one source serves all releases.
type (
	metricCounter interface{ Inc(n int64) }
	metricGauge   interface {
		Update(v int64)
		Inc(n int64)
		Dec(n int64)
	}
)

// metricsEnabled reports whether anybody looks at metrics.
func metricsEnabled() bool { return metrics.Enabled() }
