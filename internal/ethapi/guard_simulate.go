// SPDX-License-Identifier: LGPL-3.0-or-later

package ethapi

import (
	"context"

	"github.com/ethereum/go-ethereum/rpc"
)

// simulatedLog is what a log takes beside its data, in bytes, as a reply.
const simulatedLog = 1 << 10

// meterSimulated counts what a call of eth_simulateV1 leaves behind, with the meter of the
// request (rpc.BuildMeter): all of it is kept until the last call has run. It returns the
// result unchanged.
//
// A result that does not fit ends ctx, which the simulation looks at before each of its
// calls: the request is answered with the meter's error instead of being encoded. 200 calls
// that return 1 MiB each, 15 KB as a request, hold 2 MiB a call as hexadecimal digits, so
// that under a bound of 256 MiB the 128th is the last to run; all of them, encoded, took
// 2.6 GiB. What the machine allocates within one call is not counted.
//
// Without a guard, and for trusted servers, there is no meter and nothing is counted.
func meterSimulated(ctx context.Context, res simCallResult) simCallResult {
	m := rpc.BuildMeterFromContext(ctx)
	if m == nil {
		return res
	}
	n := len(res.ReturnValue)
	if res.Error != nil {
		n += len(res.Error.Data) / 2
	}
	for _, l := range res.Logs {
		n += len(l.Data) + simulatedLog/2
	}
	m.Add(2 * int64(n)) // its error ends ctx
	return res
}
