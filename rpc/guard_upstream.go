// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

// What upstream's releases spell differently, in one place: a base for older
// ones (patches/bases) has its own variant of this file, so that no other file
// needs one.

// errorSize is the number of bytes that a message's error holds. From v1.17.4 on
// an error is encoded when the message is made.
func (msg *jsonrpcMessage) errorSize() int { return len(msg.Error) }

// readLimit is the largest WebSocket message that the server reads, in bytes.
// The field came with v1.16.3.
func (s *Server) readLimit() int64 { return s.wsReadLimit }
