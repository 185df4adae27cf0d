// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

// wrapCodec returns codec as the server's guard serves it.
func (s *Server) wrapCodec(codec ServerCodec) ServerCodec {
	g := s.services.guard
	if g == nil {
		g = s.services.publishedGuard().Trusted()
	}
	wrapped := g.wrapCodec(codec)
	if c, ok := wrapped.(*guardCodec); ok && c.out != nil {
		c.server = s
		c.g.streams.add(s, c)
		c.g.workers.open()
	}
	return wrapped
}

// publishedGuard returns the guard whose own API is among the services, nil if that of
// none is. A server that was given no guard and serves this API is that of an IPC
// endpoint, which serves every API of its node: StartIPCEndpoint makes it and accepts
// connections at once, so that setting a guard on it afterwards would race the first.
func (r *serviceRegistry) publishedGuard() *Guard {
	r.mu.Lock()
	defer r.mu.Unlock()
	status := r.services["admin"].callbacks["rpcStatus"]
	if status == nil {
		return nil
	}
	api, ok := status.rcvr.Interface().(*GuardAPI)
	if !ok {
		return nil
	}
	return api.g
}
