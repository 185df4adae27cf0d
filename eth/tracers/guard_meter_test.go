// SPDX-License-Identifier: LGPL-3.0-or-later

package tracers

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/holiman/uint256"
	"github.com/stretchr/testify/require"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/vm"
)

func TestGuardStreamReplyEqualsJSON(t *testing.T) {
	for _, r := range []*txTraceResult{
		{},
		{TxHash: common.Hash{1}, Result: json.RawMessage(`{"gas":1,"structLogs":[{"op":"opcode 0xef not defined"}]}`)},
		{TxHash: common.Hash{1}, Result: json.RawMessage(`{"a": 1}`)},
		{TxHash: common.Hash{1}, Result: json.RawMessage("{\"a\":\"\u2028\"}")},
		{TxHash: common.Hash{1}, Result: json.RawMessage(`{"a":"<b>&"}`)},
		{TxHash: common.Hash{1}, Result: json.RawMessage(`"\\\" :"`)},
		{TxHash: common.Hash{1}, Result: json.RawMessage(`null`)},
		{TxHash: common.Hash{1}, Result: json.RawMessage(nil)},
		{TxHash: common.Hash{1}, Result: json.RawMessage(`{broken`)},
		{TxHash: common.Hash{1}, Error: "failed"},
		{TxHash: common.Hash{1}, Result: map[string]int{"x": 1}},
		{TxHash: common.Hash{1}, Result: json.RawMessage(`1`), Error: "both"},
	} {
		want, wantErr := json.Marshal(r)
		var got bytes.Buffer
		err := r.StreamReply(&got)
		if (err == nil) != (wantErr == nil) || !bytes.Equal(got.Bytes(), want) {
			t.Errorf("got %s (%v)\nwant %s (%v)", got.Bytes(), err, want, wantErr)
		}
	}
}

// Whatever is called canonical is left alone by encoding/json.
func FuzzGuardCanonical(f *testing.F) {
	for _, s := range []string{`{"a":[1,"\"",2]}`, `{ }`, `"<"`, "\"\u2029\"", `"\`, `{"a":"b c"}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !canonical(raw) {
			return
		}
		out, err := json.Marshal(json.RawMessage(raw))
		if err != nil || !bytes.Equal(out, raw) {
			t.Errorf("%q becomes %q (%v)", raw, out, err)
		}
	})
}

func TestGuardUsesJavaScript(t *testing.T) {
	mux, known := DefaultDirectory.elems["muxTracer"]
	t.Cleanup(func() {
		if delete(DefaultDirectory.elems, "muxTracer"); known {
			DefaultDirectory.elems["muxTracer"] = mux
		}
	})
	DefaultDirectory.Register("guardNative", nil, false)
	DefaultDirectory.Register("muxTracer", nil, false)
	for name, want := range map[string]bool{
		"guardNative": false, "{result: function() {}}": true, "": true,
	} {
		if got := usesJavaScript(name, nil, 0); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
	for cfg, want := range map[string]bool{
		`{"guardNative":{}}`:                       false,
		`{"guardNative":{},"{a:1}":{}}`:            true,
		`{"muxTracer":{"guardNative":null}}`:       false,
		`{"muxTracer":{"muxTracer":{"{a:1}":{}}}}`: true,
		`broken`: false,
	} {
		if got := usesJavaScript("muxTracer", json.RawMessage(cfg), 0); got != want {
			t.Errorf("mux %s: %v", cfg, got)
		}
	}
}

// The default tracer is charged for each step when it is recorded, not for all of them once
// the result is made. Which steps those are says the text they make.
func TestGuardLoggerIsChargedEachStep(t *testing.T) {
	m := new(traceMeter)
	machine, result := loggedMachine(m)
	var sum int64
	for n := range 5 {
		machine.step(vm.PUSH1, 3, make([]uint256.Int, n)...)
		require.Greater(t, m.output, sum, "after step %d", n)
		sum = m.output
	}
	text, err := result()
	require.NoError(t, err)
	require.InDelta(t, len(text), sum, 100, "all but the envelope")
}
