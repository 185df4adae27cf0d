// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"testing"
	"testing/synctest"
)

// newPlainServer makes a server as upstream does. In bor it takes the size of a pool.
func newPlainServer() *Server { return NewServer() }

// streamBubble runs a test of a client and a server in a bubble. In bsc calls run on
// workers that outlive it.
func streamBubble(t *testing.T, f func(*testing.T)) { synctest.Test(t, f) }
