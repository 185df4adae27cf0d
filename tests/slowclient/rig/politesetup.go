// SPDX-License-Identifier: LGPL-3.0-or-later

package rig

import (
	"context"

	"github.com/ethereum/go-ethereum/common"
)

// PoliteSetup makes what polite clients of a node need once: money and a contract.
type PoliteSetup struct {
	Account *Account
	Logger  common.Address
}

// NewPoliteSetup funds an account and deploys the logger.
func NewPoliteSetup(ctx context.Context, n *Node) (*PoliteSetup, error) {
	a, err := NewAccount(ctx, n)
	if err != nil {
		return nil, err
	}
	l, err := a.Logger(ctx)
	if err != nil {
		return nil, err
	}
	return &PoliteSetup{a, l}, nil
}
