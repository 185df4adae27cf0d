// SPDX-License-Identifier: LGPL-3.0-or-later

package tracers_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/eth/tracers"
	_ "github.com/ethereum/go-ethereum/eth/tracers/js"
	_ "github.com/ethereum/go-ethereum/eth/tracers/native"
	"github.com/ethereum/go-ethereum/rpc"
)

// What runs for ever elsewhere takes a while here, so that without the guard it is answered.
const busy = `for(var i=0;i<1e8;i++);`

// traced returns what a trace of a block with a JavaScript tracer says.
func traced(client *rpc.Client, code string, more map[string]any) string {
	config := map[string]any{"tracer": code, "timeout": "1m"}
	for k, v := range more {
		config[k] = v
	}
	var reply json.RawMessage // or an error of the call: it depends on how the block is traced
	err := client.Call(&reply, "debug_traceBlockByNumber", "0x1", config)
	return fmt.Sprint(string(reply), err)
}

// The code of a JavaScript tracer ends wherever it runs: while the tracer is made, when the
// time for that is over or its calls are too deep, and afterwards with the trace. None takes
// the node down, and one that does neither is made as ever.
func TestGuardJavaScriptEnds(t *testing.T) {
	client := tracers.TracedChain(t, nil)
	const (
		rest  = `fault:function(){},result:function(){return "whole"}`
		made  = "too long to be made"
		deep  = `function f(n){if(n<%d)[0].forEach(function(){f(n+1)})}`
		plain = `function f(n){if(n<%d)f(n+1)}`
	)
	short := map[string]any{"timeout": "300ms"}
	for name, c := range map[string]struct {
		code string
		more map[string]any
		want string
	}{
		"as it is read":        {`(function(){` + busy + `return {` + rest + `}})()`, nil, made},
		"setup":                {`{setup:function(){` + busy + `},` + rest + `}`, nil, made},
		"as it is looked at":   {`{get step(){` + busy + `},` + rest + `}`, nil, made},
		"inside of another":    {"muxTracer", map[string]any{"tracerConfig": map[string]any{`{setup:function(){` + busy + `},` + rest + `}`: map[string]any{}}}, made},
		"deep calls":           {`{setup:function(){` + fmt.Sprintf(plain, 100_000) + `f(0)},` + rest + `}`, nil, "too deep"},
		"deep calls of others": {`{setup:function(){` + fmt.Sprintf(deep, 30_000) + `f(0)},` + rest + `}`, nil, "too deep"},
		"throws":               {`{get step(){throw "thrown"},` + rest + `}`, nil, "thrown"},
		"step":                 {`{step:function(){` + busy + `},` + rest + `}`, short, "execution timeout"},
		"result":               {`{fault:function(){},result:function(){` + busy + `}}`, short, "execution timeout"},
		"as it is encoded":     {`{fault:function(){},result:function(){return {toJSON:function(){` + busy + `}}}}`, short, "execution timeout"},
		"neither":              {`{setup:function(){` + fmt.Sprintf(plain, 3_000) + fmt.Sprintf(deep, 1) + `f(0)},` + rest + `}`, nil, "whole"},
	} {
		begun := time.Now()
		got := traced(client, c.code, c.more)
		if !strings.Contains(got, c.want) {
			t.Fatalf("%s: %.300s after %v, want %q", name, got, time.Since(begun), c.want)
		}
	}
}
