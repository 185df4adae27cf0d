// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

// newPlainServer makes a server as upstream does. In bor it takes the size of a pool.
func newPlainServer() *Server { return NewServer() }
