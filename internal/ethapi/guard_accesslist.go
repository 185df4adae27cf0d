// SPDX-License-Identifier: LGPL-3.0-or-later

package ethapi

import (
	"context"
	"time"

	"github.com/ethereum/go-ethereum/core/vm"
)

// accessListBackend is the backend of one access list. It has each of the machines that
// the list is tried with end with the call.
type accessListBackend struct {
	Backend
	ctx     context.Context
	timeout time.Duration
	cancel  context.CancelFunc
	done    func() // with the latest machine
}

// beginAccessList gives an access list the time that a call may take (--rpc.evmtimeout).
// A list that is tried again and again, since each try touches something else, has no
// other end.
func beginAccessList(ctx context.Context, b Backend) *accessListBackend {
	l := &accessListBackend{Backend: b, timeout: b.RPCEVMTimeout(), done: func() {}}
	if l.timeout > 0 {
		l.ctx, l.cancel = context.WithTimeout(ctx, l.timeout)
	} else {
		l.ctx, l.cancel = context.WithCancel(ctx)
	}
	return l
}

// ending has evm end with the list. Those before have done their work, and with them what
// keeps them: there are thousands.
func (l *accessListBackend) ending(evm *vm.EVM) *vm.EVM {
	l.done()
	l.done = endWith(l.ctx, evm)
	return evm
}

// end returns why the list is not whole: the time-out, or else err.
func (l *accessListBackend) end(err error) error {
	l.done()
	defer l.cancel()
	if cut := cutShort(l.ctx, l.timeout); cut != nil {
		return cut
	}
	return err
}
