// SPDX-License-Identifier: LGPL-3.0-or-later

package rig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// RPCError is the error object of a reply.
type RPCError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

func (e *RPCError) Error() string { return fmt.Sprintf("%d %s", e.Code, e.Message) }

// Reply is one JSON-RPC message from the server: a reply, or a notification when
// Method is set.
type Reply struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Err     *RPCError       `json:"error,omitempty"`
}

// Code is the error's code, 0 without one.
func (r *Reply) Code() int {
	if r == nil || r.Err == nil {
		return 0
	}
	return r.Err.Code
}

// Text is the result when it is a string.
func (r *Reply) Text() string {
	var s string
	json.Unmarshal(r.Result, &s)
	return s
}

// Call encodes a call with a numeric id.
func Call(id int, method string, params ...any) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, id, method, encodeParams(params))
}

// Notification encodes a call that wants no answer.
func Notification(method string, params ...any) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","method":%q,"params":%s}`, method, encodeParams(params))
}

// Batch encodes calls as one array.
func Batch(calls ...[]byte) []byte {
	return append(append([]byte{'['}, bytes.Join(calls, []byte{','})...), ']')
}

// Raw is a parameter written into the call as it is.
type Raw string

func encodeParams(params []any) string {
	var parts []string
	for _, p := range params {
		if r, ok := p.(Raw); ok {
			parts = append(parts, string(r))
			continue
		}
		b, err := json.Marshal(p)
		if err != nil {
			panic(err) // a mistake in a recipe
		}
		parts = append(parts, string(b))
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// Code 0x5b600056 jumps to its own beginning until the EVM's time is over. The
// override puts it where nothing was, so that no contract is needed.
const (
	loopTo       = `{"to":"0x00000000000000000000000000000000000000cc"}`
	loopOverride = `{"0x00000000000000000000000000000000000000cc":{"code":"0x5b600056"}}`
)

// SlowCall is an eth_call that runs until the EVM timeout.
func SlowCall(id int) []byte {
	return Call(id, "eth_call", Raw(loopTo), "latest", Raw(loopOverride))
}

// SlowNotification is the same without an id.
func SlowNotification() []byte {
	return Notification("eth_call", Raw(loopTo), "latest", Raw(loopOverride))
}

// SlowTrace is a heavy call that runs until its timeout, which is the server's
// when timeout is empty. The tracer keeps nothing, so that only time is used.
func SlowTrace(id int, timeout string) []byte {
	cfg := `{"tracer":"noopTracer","stateOverrides":` + loopOverride
	if timeout != "" {
		cfg += fmt.Sprintf(`,"timeout":%q`, timeout)
	}
	return Call(id, "debug_traceCall", Raw(loopTo), "latest", Raw(cfg+"}"))
}

// TraceWith is a slow trace with a tracer of its own, whose configuration is given as it
// is to be sent.
func TraceWith(id int, tracer, config, timeout string) []byte {
	return Call(id, "debug_traceCall", Raw(loopTo), "latest",
		Raw(fmt.Sprintf(`{"tracer":%q,"tracerConfig":%s,"timeout":%q,"stateOverrides":%s}`, tracer, config, timeout, loopOverride)))
}

// GrowingTrace is a heavy call that collects a step after the other until its
// timeout: memory grows with time.
func GrowingTrace(id int, timeout string) []byte {
	cfg := `{"stateOverrides":` + loopOverride
	if timeout != "" {
		cfg += fmt.Sprintf(`,"timeout":%q`, timeout)
	}
	return Call(id, "debug_traceCall", Raw(loopTo), "latest", Raw(cfg+"}"))
}
