// SPDX-License-Identifier: LGPL-3.0-or-later

package ethapi

import (
	"context"

	"github.com/ethereum/go-ethereum/core"
	"github.com/ethereum/go-ethereum/core/state"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/core/vm"
	"github.com/ethereum/go-ethereum/rpc"
)

// The variant for releases before v1.15: an access list takes no overrides, and a machine is
// made for a message.

// AccessList stands in front of upstream's function of that name.
func AccessList(ctx context.Context, b Backend, blockNrOrHash rpc.BlockNumberOrHash, args TransactionArgs) (acl types.AccessList, gasUsed uint64, vmErr error, err error) {
	if !rpc.EndsWithCall(ctx) {
		return accessListUnguarded(ctx, b, blockNrOrHash, args)
	}
	l := beginAccessList(ctx, b)
	acl, gasUsed, vmErr, err = accessListUnguarded(l.ctx, l, blockNrOrHash, args)
	if err = l.end(err); err != nil {
		return nil, 0, nil, err
	}
	return acl, gasUsed, vmErr, nil
}

func (l *accessListBackend) GetEVM(ctx context.Context, msg *core.Message, db *state.StateDB, header *types.Header, config *vm.Config, block *vm.BlockContext) *vm.EVM {
	return l.ending(l.Backend.GetEVM(ctx, msg, db, header, config, block))
}
