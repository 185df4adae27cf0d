// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"testing"
	"testing/synctest"
)

// newPlainServer makes a server without a pool: calls run at once, as upstream does.
func newPlainServer() *Server { return NewServer("guard", 0, 0) }

// streamBubble runs a test of a client and a server in a bubble.
func streamBubble(t *testing.T, f func(*testing.T)) { synctest.Test(t, f) }
