// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import "testing"

// newPlainServer makes a server as upstream does.
func newPlainServer() *Server { return NewServer() }

// streamBubble runs a test of a client and a server, in real time: calls run on workers
// of a pool of the whole process, which keeps one for ten seconds after its call. A
// bubble has to outlive what is started in it, so there it would be a deadlock.
func streamBubble(t *testing.T, f func(*testing.T)) { f(t) }
