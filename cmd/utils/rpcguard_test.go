// SPDX-License-Identifier: LGPL-3.0-or-later

package utils

import (
	"flag"
	"reflect"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/node"
	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v2"
)

// Each flag changes the field it is named for and no other, and a flag that is
// not given leaves what the configuration file said.
func TestGuardFlagsSetTheirFields(t *testing.T) {
	values := map[string]string{
		"rpc.guard": "false", "rpc.guard.dryrun": "true",
		"rpc.heavy.jstracers": "false", "rpc.client.local": "true",
		"rpc.sub.overflow": "unsubscribe",
	}
	for _, f := range guardFlags {
		name := f.Names()[0]
		value := values[name]
		switch f.Flag.(type) {
		case *cli.IntFlag, *cli.Int64Flag:
			value = "7777"
		case *cli.DurationFlag:
			value = "77s"
		case *cli.StringFlag:
			if value == "" {
				value = "a, b"
			}
		}
		set := flag.NewFlagSet("test", flag.ContinueOnError)
		require.NoError(t, f.Apply(set))
		ctx := cli.NewContext(cli.NewApp(), set, nil)

		before := node.DefaultConfig
		before.RPCGuard.Admission.Wait = 3 * time.Second // as from a file
		after := before
		setRPCGuard(ctx, &after)
		require.Equal(t, before.RPCGuard, after.RPCGuard, "--%s was not given", name)

		require.NoError(t, set.Set(name, value), name)
		setRPCGuard(ctx, &after)
		require.Equal(t, 1, differences(reflect.ValueOf(before.RPCGuard), reflect.ValueOf(after.RPCGuard)), "--%s=%s", name, value)
	}
}

// TestGuardFlagsReachTheNode: what the command line says is in the configuration that
// a node is made from.
func TestGuardFlagsReachTheNode(t *testing.T) {
	set := flag.NewFlagSet("test", flag.ContinueOnError)
	for _, f := range RPCGuardFlags() {
		require.NoError(t, f.Apply(set))
	}
	require.NoError(t, set.Set("rpc.admission.concurrency", "77"))
	cfg := node.DefaultConfig
	SetNodeConfig(cli.NewContext(cli.NewApp(), set, nil), &cfg)
	require.Equal(t, 77, cfg.RPCGuard.Admission.Concurrency)
}

func differences(a, b reflect.Value) (n int) {
	if a.Kind() != reflect.Struct {
		if !reflect.DeepEqual(a.Interface(), b.Interface()) {
			return 1
		}
		return 0
	}
	for i := range a.NumField() {
		n += differences(a.Field(i), b.Field(i))
	}
	return n
}
