// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

// newPlainServer makes a server without a pool: calls run at once, as upstream does.
func newPlainServer() *Server { return NewServer("guard", 0, 0) }
