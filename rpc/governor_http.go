// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// httpAttempt is the context of one attempt over HTTP. It brings back what upstream's
// HTTPError leaves out. Only the goroutine of the attempt touches it, before and after
// http.Client.Do.
type httpAttempt struct {
	context.Context
	retryAfter time.Duration
}

type httpAttemptKey struct{}

// Value makes the attempt findable from the contexts derived of it.
func (a *httpAttempt) Value(key interface{}) interface{} {
	if key == (httpAttemptKey{}) {
		return a
	}
	return a.Context.Value(key)
}

// retryAfterTransport notes the Retry-After of a response for the attempt that its
// request belongs to.
type retryAfterTransport struct {
	base http.RoundTripper // nil: http.DefaultTransport
}

// RoundTrip implements http.RoundTripper.
func (t retryAfterTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	base := t.base
	if base == nil {
		base = http.DefaultTransport
	}
	resp, err := base.RoundTrip(req)
	if err == nil && len(resp.Header["Retry-After"]) > 0 {
		if a, ok := req.Context().Value(httpAttemptKey{}).(*httpAttempt); ok {
			a.retryAfter = parseRetryAfter(resp.Header, time.Now())
		}
	}
	return resp, err
}

// parseRetryAfter returns the time that the header asks a client to wait: seconds, or a
// date, which is compared with the date of the same server, since clocks differ. It
// returns 0 for a header that is absent, malformed or in the past.
func parseRetryAfter(h http.Header, now time.Time) time.Duration {
	value := strings.TrimSpace(h.Get("Retry-After"))
	if value == "" {
		return 0
	}
	if value[0] >= '0' && value[0] <= '9' {
		seconds, err := strconv.ParseUint(value, 10, 31)
		if errors.Is(err, strconv.ErrRange) {
			seconds = 1<<31 - 1 // callers cap it anyway
		} else if err != nil {
			return 0
		}
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	if d := at.Sub(now); d > 0 {
		return d
	}
	return 0
}

// httpCallError is a JSON-RPC error that came with a status other than 2xx. It is an
// Error and a DataError with the code and data of the body, and the HTTPError is found
// by errors.As.
type httpCallError struct {
	call jsonError
	http HTTPError
}

// Error returns the status line and the message of the JSON-RPC error.
func (e *httpCallError) Error() string {
	return fmt.Sprintf("%s: %s", e.http.Status, e.call.Error())
}

// ErrorCode returns the code of the JSON-RPC error.
func (e *httpCallError) ErrorCode() int { return e.call.Code }

// ErrorData returns the data of the JSON-RPC error.
func (e *httpCallError) ErrorData() interface{} { return e.call.Data }

// Unwrap returns the HTTPError.
func (e *httpCallError) Unwrap() error { return e.http }

// withCallError returns err with the JSON-RPC error that its HTTP body holds, if it does.
func withCallError(err error) error {
	httpErr, ok := err.(HTTPError) // as upstream returns it
	if !ok {
		return err
	}
	var body struct {
		Error *jsonError `json:"error"`
	}
	if json.Unmarshal(httpErr.Body, &body) != nil || body.Error == nil || body.Error.Code == 0 {
		return err
	}
	return &httpCallError{call: *body.Error, http: httpErr}
}
