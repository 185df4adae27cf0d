// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"encoding/json"
	"strconv"
	"time"
)

// sleeps names the methods that sleep for as many seconds as their second parameter
// says, whoever leaves meanwhile: nothing can wake them.
func sleeps(method string) bool {
	switch method {
	case "debug_blockProfile", "debug_cpuProfile", "debug_goTrace", "debug_mutexProfile":
		return true
	}
	return false
}

// capSleep bounds how long a client may have the node sleep, as it is bounded how long
// it may have it trace. Each sleeper has a place among the parked calls, which are
// there for eth_sendRawTransactionSync too: two clients that ask for a century each
// would keep all of them until the node is restarted (TestTrapSleepersOfGoneClients).
//
// What is no number of seconds is left to upstream's own error.
func capSleep(params json.RawMessage, longest time.Duration) json.RawMessage {
	var list []json.RawMessage
	if json.Unmarshal(params, &list) != nil || len(list) < 2 {
		return params
	}
	var seconds uint64
	most := uint64(longest / time.Second)
	if json.Unmarshal(list[1], &seconds) != nil || seconds <= most {
		return params
	}
	list[1] = strconv.AppendUint(nil, most, 10)
	capped, err := json.Marshal(list)
	if err != nil {
		return params
	}
	return capped
}
