// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"
)

func testClassifier(t testing.TB, extra [numClasses][]string) *classifier {
	t.Helper()
	c, err := newClassifier(extra)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestClassify(t *testing.T) {
	c := testClassifier(t, [numClasses][]string{})
	for _, test := range []struct {
		method, params string
		want           callClass
	}{
		{"eth_chainId", ``, classLight},
		{"net_version", `[]`, classLight},
		{"debug_unsubscribe", `["0x1"]`, classLight},
		{"eth_getBalance", `["0x1","latest"]`, classNormal},
		{"eth_subscribe", `["newHeads"]`, classNormal},
		{"debug_getRawBlock", `["latest"]`, classCompute},
		{"debug_getRawHeader", `["latest"]`, classNormal},
		{"debug_getRawHeader", `["pending"]`, classCompute},
		{"eth_getBalance", `["0x1","pending"]`, classCompute},
		{"eth_getBalance", `["0x1",{"blockNumber":"pending"}]`, classCompute},
		{"eth_getBalance", `["0x1","pend\u0069ng"]`, classCompute},
		{"eth_getBlockByNumber", `["pending",true]`, classCompute},
		{"eth_feeHistory", `["0x400","pending"]`, classCompute},
		{"eth_getTransactionCount", `["0x1","pending"]`, classNormal},
		{"eth_getLogs", `[{"fromBlock":"pending"}]`, classNormal},
		{"eth_subscribe", `["newPendingTransactions"]`, classNormal},
		{"eth_signTransaction", `[{}]`, classCompute},
		{"eth_sendRawTransaction", `["0x` + strings.Repeat("0", blobParams-20) + `"]`, classNormal},
		{"eth_sendRawTransaction", `["0x` + strings.Repeat("0", blobParams) + `"]`, classCompute},
		{"eth_sendRawTransactionSync", `["0x` + strings.Repeat("0", blobParams) + `"]`, classCompute},
		{"eth_call", `[{}]`, classCompute},
		{"debug_traceCall", `[{}]`, classHeavy},
		{"debug_subscribe", `["traceChain","0x1","0x9"]`, classHeavy},
		{"trace_filter", `[{}]`, classHeavy},
		{"txpool_contentFrom", `["0x1"]`, classHeavy},
		{"txpool_status", ``, classNormal},
		{"eth_sendRawTransactionSync", `["0x1"]`, classParked},
		{"debug_cpuProfile", `["f",30]`, classParked},

		{"eth_feeHistory", `["0x400","latest"]`, classNormal},
		{"eth_feeHistory", `["0x400","latest",[]]`, classNormal},
		{"eth_feeHistory", `["0x400","latest",null]`, classNormal},
		{"eth_feeHistory", `["0x400","latest", [ 25 ] ]`, classHeavy},

		{"eth_getFilterLogs", `["0x1"]`, classHeavy},
		{"eth_getLogs", ``, classNormal},
		{"eth_getLogs", `[]`, classNormal},
		{"eth_getLogs", `[{}]`, classNormal},
		{"eth_getLogs", `[{"blockHash":"0xab"}]`, classNormal},
		{"eth_getLogs", `[{"blockHash":null,"fromBlock":"0x0"}]`, classHeavy},
		{"eth_getLogs", `[{"address":["0x1","0x2"],"topics":[[],["}"]],"fromBlock":"0x10","toBlock":"0x19"}]`, classNormal},
		{"eth_getLogs", `[{"fromBlock":"0x10","toBlock":"0x1a"}]`, classHeavy},
		{"eth_getLogs", `[{"fromBlock":"0x10","toBlock":"0x1"}]`, classNormal},
		{"eth_getLogs", ` [ { "fromBlock" : "0x10" , "toBlock" : "0x19" } ] `, classNormal},
		{"eth_getLogs", `[{"fromBlock":"0x10"}]`, classHeavy},
		{"eth_getLogs", `[{"fromBlock":"0x10","toBlock":"latest"}]`, classHeavy},
		{"eth_getLogs", `[{"fromBlock":"latest"}]`, classNormal},
		{"eth_getLogs", `[{"toBlock":"0x10"}]`, classNormal},
		{"eth_getLogs", `[{"fromBlock":"earliest","toBlock":"0x9"}]`, classNormal},
		{"eth_getLogs", `[{"fromBlock":"earliest","toBlock":"0xa"}]`, classHeavy},
		{"eth_getLogs", `[{"fromBlock":"finalized","toBlock":"finalized"}]`, classNormal},
		{"eth_getLogs", `[{"fromBlock":"safe","toBlock":"latest"}]`, classHeavy},
		{"eth_getLogs", `[{"fromBlock":16,"toBlock":17}]`, classHeavy},
		{"eth_getLogs", `[{"fromBlock":"0xffffffffffffffffffffff"}]`, classHeavy},
		// What encoding/json takes for the same member must be taken for it here.
		{"eth_getLogs", `[{"FROMBLOCK":"0x0"}]`, classHeavy},
		{"eth_getLogs", `[{"from\u0042lock":"0x0"}]`, classHeavy},
		{"eth_getLogs", "[{\"fromBloc\u212a\":\"0x0\"}]", classHeavy}, // the Kelvin sign
		{"eth_getLogs", `[{"fromBlock":"0x10","toBlock":"0x10","fromBlock":"0x0"}]`, classHeavy},
		{"eth_getLogs", `[{"x":{"fromBlock":"0x0"},"y":"\",\"fromBlock\":\"0x0"}]`, classNormal},
		{"eth_getLogs", `[{"fromBlock":"0x0"`, classHeavy},
	} {
		if got := c.classify(test.method, []byte(test.params)); got != test.want {
			t.Errorf("%s %s: %v, want %v", test.method, test.params, got, test.want)
		}
	}
}

func TestClassPatternsOfTheOperator(t *testing.T) {
	c := testClassifier(t, [numClasses][]string{
		classLight:   {"eth_getBalance", "debug_*"},
		classNormal:  {"eth_getLogs"},
		classCompute: {"bor_*", "bor_get*"},
		classHeavy:   {"*_dump", "bor_getRoot"},
	})
	for method, want := range map[string]callClass{
		"eth_getBalance":         classLight,
		"debug_traceTransaction": classLight, // the operator's word, whatever the list in the code
		"eth_getLogs":            classNormal,
		"bor_getAuthor":          classCompute,
		"bor_getRoot":            classHeavy,
		"clique_dump":            classHeavy,
		"eth_call":               classCompute,
	} {
		if got := c.classify(method, []byte(`[{"fromBlock":"0x0"}]`)); got != want {
			t.Errorf("%s: %v, want %v", method, got, want)
		}
	}
	for _, bad := range []string{"", "*", "*_", "eth_*_x", "eth call", "eth_c\u00e4ll", "**", strings.Repeat("a", 257)} {
		if _, err := newClassifier([numClasses][]string{classHeavy: {bad}}); err == nil {
			t.Errorf("pattern %q accepted", bad)
		}
	}
	_, err := newClassifier([numClasses][]string{classLight: {"a_b"}, classHeavy: {"a_b"}})
	if err == nil || !strings.Contains(err.Error(), "--rpc.admission.heavy-methods: ") || !strings.Contains(err.Error(), "a_b") {
		t.Errorf("a pattern in two classes: error %v", err)
	}
}

// FuzzClassPatterns: a pattern is refused or does exactly what it says.
func FuzzClassPatterns(f *testing.F) {
	f.Add("eth_call", "eth_callMany")
	f.Add("debug_*", "debug_x")
	f.Add("*_dump", "a_dump")
	f.Fuzz(func(t *testing.T, pattern, method string) {
		c, err := newClassifier([numClasses][]string{classParked: {pattern}})
		if err != nil {
			return
		}
		matches := method == pattern
		if rest, ok := strings.CutSuffix(pattern, "*"); ok {
			matches = strings.HasPrefix(method, rest)
		} else if rest, ok := strings.CutPrefix(pattern, "*"); ok {
			matches = strings.HasSuffix(method, rest)
		}
		builtin := testClassifier(t, [numClasses][]string{}).classify(method, nil)
		if got := c.classify(method, nil); matches && got != classParked || !matches && got != builtin {
			t.Fatalf("pattern %q, method %q: %v", pattern, method, got)
		}
	})
}

// FuzzLogQueryWidth: a query that the server would read as wide is never called
// narrow, however it is written.
func FuzzLogQueryWidth(f *testing.F) {
	f.Add(`[{"fromBlock":"0x10","toBlock":"0x19"}]`)
	f.Add(`[{"FromBlock":"0x1","x":[{"]":"}"}],"toblock":"latest"}]`)
	f.Add(`[{"blockHash":"0x1"},{"fromBlock":"0x0"}]`)
	f.Fuzz(func(t *testing.T, params string) {
		narrow := narrowLogQuery([]byte(params)) // must not crash, valid or not
		var args []json.RawMessage
		if json.Unmarshal([]byte(params), &args) != nil || len(args) == 0 {
			return
		}
		var query struct {
			BlockHash          *string
			FromBlock, ToBlock *BlockNumber
		}
		if json.Unmarshal(args[0], &query) != nil || query.BlockHash != nil || !narrow {
			return
		}
		from, to := LatestBlockNumber, LatestBlockNumber
		if query.FromBlock != nil {
			from = *query.FromBlock
		}
		if query.ToBlock != nil {
			to = *query.ToBlock
		}
		if from == EarliestBlockNumber {
			from = 0
		}
		if from < 0 && (from == LatestBlockNumber || from == PendingBlockNumber || from == to) {
			return
		}
		if to == EarliestBlockNumber {
			to = 0
		}
		if from < 0 || to < 0 || to-from >= narrowLogBlocks {
			t.Fatalf("%s spans %d to %d and passes for narrow", params, from, to)
		}
	})
}

// FuzzGateLimits: whatever the limits, a gate either refuses them or does its
// arithmetic without a sum wrapping around.
func FuzzGateLimits(f *testing.F) {
	f.Add(int64(640), int64(8192), int64(1), int64(1), int64(1024))
	const huge = int64(^uint64(0) >> 1)
	f.Add(huge, huge, huge, huge, huge)
	f.Add(int64(0), int64(-1), int64(0), int64(0), int64(0))
	f.Fuzz(func(t *testing.T, concurrency, queue, cpu, heavy, parked int64) {
		l := gateLimits{int(concurrency), int(queue), int(cpu), int(heavy), int(parked)}
		if err := l.validate(); err != nil {
			if !strings.Contains(err.Error(), "want at least") {
				t.Fatalf("error %q does not say what is allowed", err)
			}
			return
		}
		want := new(big.Int).Mul(big.NewInt(int64(l.heavyMax())), big.NewInt(queue))
		want.Add(want, big.NewInt(concurrency-1))
		want.Div(want, big.NewInt(concurrency))
		if got := l.heavyPlaces(); want.Cmp(big.NewInt(int64(got))) != 0 {
			t.Fatalf("%+v: %d places for heavy calls, want %v", l, got, want)
		}
		for n := range 3 {
			at := l.Queue/4*3 + l.Queue%4*3/4 + n - 1
			fourfold := new(big.Int).Mul(big.NewInt(int64(at)), big.NewInt(4))
			exact := fourfold.Cmp(new(big.Int).Mul(big.NewInt(queue), big.NewInt(3))) > 0
			if at >= 0 && moreThanThreeQuarters(at, l.Queue) != exact {
				t.Fatalf("is %d more than three quarters of %d?", at, l.Queue)
			}
		}
		if c := fairCap(l.Concurrency); c < 1 || c > l.Concurrency {
			t.Fatalf("one client may hold %d of %d", c, l.Concurrency)
		}
	})
}

func BenchmarkClassify(b *testing.B) {
	c := testClassifier(b, [numClasses][]string{})
	query := []byte(`[{"address":["0x1","0x2"],"topics":[[],["0x3"]],"fromBlock":"0x10","toBlock":"0x19"}]`)
	for _, method := range []string{"eth_chainId", "eth_getBalance", "eth_getLogs", "debug_traceCall"} {
		b.Run(method, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.classify(method, query)
			}
		})
	}
}
