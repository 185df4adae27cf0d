// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// refusalTime is how long the answer to a refused request may take to leave. The
// server's read and write time-outs are equal by default, so a body that took all
// the time there is would leave none for the answer that says so.
const refusalTime = 5 * time.Second

// errcodeBodyTimeout answers a body that stalled or took too long.
const errcodeBodyTimeout = -32002

// bodyBooks counts refused requests by cause, each once.
type bodyBooks struct {
	full     atomic.Uint64 // the budget was
	tooLarge atomic.Uint64
	idle     atomic.Uint64 // nothing came for too long
	slow     atomic.Uint64 // it took too long in all
	shutdown atomic.Uint64
}

// count notes a refusal and returns how it is answered over HTTP.
func (b *bodyBooks) count(err error) (status int) {
	var full *budgetError
	switch {
	case errors.As(err, &full):
		b.full.Add(1)
		return http.StatusServiceUnavailable
	case errors.Is(err, errBodyTooLarge):
		b.tooLarge.Add(1)
		return http.StatusRequestEntityTooLarge
	case err == errBodyIdle || err == errMessageIdle:
		b.idle.Add(1)
		return http.StatusRequestTimeout
	case err == errBodyShutdown:
		b.shutdown.Add(1)
		return http.StatusServiceUnavailable
	default:
		b.slow.Add(1)
		return http.StatusRequestTimeout
	}
}

// refusalJSON returns the reply to a request that was refused before it was read.
func refusalJSON(err error, status int) []byte {
	var full *budgetError
	switch {
	case errors.As(err, &full):
		err = full
	case status == http.StatusRequestTimeout:
		err = &bodyError{errcodeBodyTimeout, err.Error()}
	case status == http.StatusRequestEntityTooLarge:
		err = &bodyError{-32600, strings.TrimPrefix(err.Error(), errBodyTooLarge.Error()+": ")}
	default:
		err = &bodyError{errcodeBudget, err.Error()}
	}
	return appendMessage(nil, errorMessage(err))
}

// bodyError is a refusal as its client sees it.
type bodyError struct {
	code    int
	message string
}

func (e *bodyError) Error() string  { return e.message }
func (e *bodyError) ErrorCode() int { return e.code }

// refuseBody answers a request whose body is not read, or not to its end, at once,
// and then drops what the client is still sending. begun says whether any of the
// body was read. It returns true.
func (g *Guard) refuseBody(w http.ResponseWriter, r *http.Request, cfg bodyConfig, begun bool, err error) bool {
	status := g.bodyBooks.count(err)
	reply := refusalJSON(err, status)

	rc := http.NewResponseController(w)
	// Without full duplex the server reads up to 256 KiB of the body before the
	// answer goes out.
	rc.EnableFullDuplex()
	rc.SetWriteDeadline(time.Now().Add(refusalTime))
	h := w.Header()
	h.Set("Content-Type", contentType)
	if status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	// A wrapper that has announced to compress will compress this as well, and
	// only it knows the length then. One that has not is told not to begin.
	if h.Get("Content-Encoding") == "" {
		h.Set("Content-Length", strconv.Itoa(len(reply)))
		h.Set("Transfer-Encoding", "identity")
	}
	stalled := status == http.StatusRequestTimeout || err == errBodyShutdown
	last := stalled || r.ContentLength < 0 || r.ContentLength > cfg.limit
	if last && r.ProtoMajor == 1 {
		// The end of the body may never be seen, and what is left of it would be
		// taken for a request. Over HTTP/2 the header would end the connection,
		// all other streams included.
		h.Set("Connection", "close")
	}
	w.WriteHeader(status)
	w.Write(reply)
	rc.Flush()
	switch {
	case r.ProtoMajor != 1:
		return true // a stream ends by itself, and the answer with this return
	case stalled, !begun && expectsContinue(r):
		return true // nothing more comes
	}
	// A body that lost its bytes to another one was cut short by a read deadline in the
	// past, at which the drain would end before it begins. Its own bound is shorter than
	// what the server's may be.
	rc.SetReadDeadline(time.Time{})
	compressed := h.Get("Content-Encoding") != "" // and has an end yet to be written
	switch err := drainBody(r.Body, cfg.limit, g.clock, rc.SetReadDeadline); {
	case err == nil:
	case !last:
		// Too late to announce it, but the client has had 5 s for the answer.
		panic(http.ErrAbortHandler)
	case err == errBodyBroken && r.ContentLength < 0 && !compressed:
		drainConn(rc, cfg.limit, g.clock)
	}
	return true
}

// expectsContinue reports whether the client waits for leave to send the body.
func expectsContinue(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Expect"), "100-continue")
}
