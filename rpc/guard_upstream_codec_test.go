// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import "context"

// stuckWriter is a connection whose client reads only when told to.
type stuckWriter struct {
	ServerCodec
	writing chan struct{}
	free    chan struct{}
}

func (w *stuckWriter) writeJSON(ctx context.Context, msg *jsonrpcMessage, isError bool) error {
	w.writing <- struct{}{}
	<-w.free
	return w.ServerCodec.writeJSON(ctx, msg, isError)
}
