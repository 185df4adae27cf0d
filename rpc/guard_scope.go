// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

// callScope accompanies one call from admission to the last byte of its reply.
// The request message carries it, and so does the response made from it.
type callScope struct {
	g *Guard
}
