// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCapSleep(t *testing.T) {
	for params, want := range map[string]string{
		`["f",4000000000]`:           `["f",30]`,
		`["f",18446744073709551615]`: `["f",30]`,
		`["f", 30]`:                  `["f", 30]`,
		`["f",0]`:                    `["f",0]`,
		`["f",31,"more"]`:            `["f",30,"more"]`,
		`["f",-1]`:                   `["f",-1]`,
		`["f",4e9]`:                  `["f",4e9]`,
		`["f","40"]`:                 `["f","40"]`,
		`["f",null]`:                 `["f",null]`,
		`["f"]`:                      `["f"]`,
		`{"a":1}`:                    `{"a":1}`,
		``:                           ``,
		`[`:                          `[`,
	} {
		require.Equal(t, want, string(capSleep(json.RawMessage(params), 30*time.Second)), params)
	}
}

// sleepService says how long it was told to sleep, and does not.
type sleepService struct{}

func (sleepService) MutexProfile(file string, seconds uint) uint { return seconds }
func (sleepService) SetBlockProfileRate(file string, rate uint) uint {
	return rate
}

// Trap: a place among the parked calls that a client takes for a century and leaves.
func TestTrapSleepersOfGoneClients(t *testing.T) {
	cfg := DefaultGuardConfig
	cfg.Admission.HeavyTimeout = 3 * time.Second
	g, err := NewGuard(cfg, testGuardEnv)
	require.NoError(t, err)
	for trusted, want := range map[bool]uint{false: 3, true: 4_000_000_000} {
		srv := newPlainServer()
		if trusted {
			srv.SetGuard(g.Trusted())
		} else {
			srv.SetGuard(g)
		}
		require.NoError(t, srv.RegisterName("debug", sleepService{}))
		client := DialInProc(srv)
		var seconds uint
		require.NoError(t, client.Call(&seconds, "debug_mutexProfile", "f", uint(4_000_000_000)))
		require.Equal(t, want, seconds, "trusted %v", trusted)
		require.NoError(t, client.Call(&seconds, "debug_setBlockProfileRate", "f", uint(4_000_000_000)))
		require.EqualValues(t, 4_000_000_000, seconds, "a number that is no time")
		client.Close()
		srv.Stop()
	}
}
