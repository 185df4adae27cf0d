// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"net/http"
	"sync"
)

// requestScope accompanies one HTTP request.
type requestScope struct {
	g   *Guard
	key clientKey

	mu     sync.Mutex
	status int // of the reply, if a refusal wants its own; 0: upstream's
}

type requestScopeKey struct{}

// requestScopeOf returns the scope of the HTTP request that ctx belongs to, nil
// on streams and inside the process.
func requestScopeOf(ctx context.Context) *requestScope {
	s, _ := ctx.Value(requestScopeKey{}).(*requestScope)
	return s
}

// setStatus makes the reply, if it has not begun, go out with the given status. A
// refused call that is alone in its request uses it.
func (s *requestScope) setStatus(code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = code
}

// replyWriter is the response writer of a guarded request.
type replyWriter struct {
	http.ResponseWriter
	scope *requestScope
	begun bool
}

// Write implements http.ResponseWriter.
func (w *replyWriter) Write(p []byte) (int, error) {
	if !w.begun {
		w.begun = true
		w.scope.mu.Lock()
		status := w.scope.status
		w.scope.mu.Unlock()
		if status != 0 {
			w.ResponseWriter.WriteHeader(status)
		}
	}
	return w.ResponseWriter.Write(p)
}

// Flush implements http.Flusher.
func (w *replyWriter) Flush() { http.NewResponseController(w.ResponseWriter).Flush() }

// Unwrap serves http.ResponseController.
func (w *replyWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
