// SPDX-License-Identifier: LGPL-3.0-or-later

package utils

import (
	"flag"
	"fmt"
	"slices"

	"github.com/ethereum/go-ethereum/rpc"
	"github.com/urfave/cli/v2"
)

// SetRPCGuardFlag sets what one of RPCGuardFlags stands for from the text given to
// it, for a command line that is not urfave's. It fails if there is no such flag or
// the text is none of its values; ranges are checked where the guard is built.
func SetRPCGuardFlag(name, text string, cfg *rpc.GuardConfig) error {
	for _, f := range guardFlags {
		if !slices.Contains(f.Names(), name) {
			continue
		}
		set := flag.NewFlagSet(name, flag.ContinueOnError)
		if err := f.Apply(set); err != nil {
			return err
		}
		if err := set.Set(name, text); err != nil {
			return err
		}
		f.set(cli.NewContext(nil, set, nil), name, cfg)
		return nil
	}
	return fmt.Errorf("the guard has no flag %s", name)
}
