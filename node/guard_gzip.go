// SPDX-License-Identifier: LGPL-3.0-or-later

package node

// PassThrough makes the writer compress nothing, because whoever writes to it does. It
// reports false once something was written. The rpc package asks for it.
func (w *gzipResponseWriter) PassThrough() bool {
	if w.inited {
		return false
	}
	w.inited = true
	return true
}
