// SPDX-License-Identifier: LGPL-3.0-or-later

package ethapi

import (
	"context"

	"github.com/ethereum/go-ethereum/core/state"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/core/vm"
	"github.com/ethereum/go-ethereum/internal/ethapi/override"
	"github.com/ethereum/go-ethereum/rpc"
)

// What releases give to an access list and to a machine differs; this is the one place
// that says it.

// AccessList stands in front of upstream's function of that name.
func AccessList(ctx context.Context, b Backend, blockNrOrHash rpc.BlockNumberOrHash, args TransactionArgs, stateOverrides *override.StateOverride) (acl types.AccessList, gasUsed uint64, vmErr error, err error) {
	if !rpc.EndsWithCall(ctx) {
		return accessListUnguarded(ctx, b, blockNrOrHash, args, stateOverrides)
	}
	l := beginAccessList(ctx, b)
	acl, gasUsed, vmErr, err = accessListUnguarded(l.ctx, l, blockNrOrHash, args, stateOverrides)
	if err = l.end(err); err != nil {
		return nil, 0, nil, err
	}
	return acl, gasUsed, vmErr, nil
}

func (l *accessListBackend) GetEVM(ctx context.Context, db *state.StateDB, header *types.Header, config *vm.Config, block *vm.BlockContext) *vm.EVM {
	return l.ending(l.Backend.GetEVM(ctx, db, header, config, block))
}
