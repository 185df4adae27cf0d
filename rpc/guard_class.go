// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"fmt"
	"slices"
	"strings"
)

// callClass says what a call costs the node, and with that which permits it
// needs before it runs.
type callClass uint8

const (
	classLight   callClass = iota // answered from memory: never refused, never queued
	classNormal                   // reads the database
	classCompute                  // runs the EVM within a gas cap
	classHeavy                    // runs the EVM or walks the database without one
	classParked                   // sleeps in the node and costs it nothing meanwhile
	numClasses
)

var classNames = [numClasses]string{"light", "normal", "compute", "heavy", "parked"}

func (c callClass) String() string { return classNames[c] }

// graphqlMethod is the name under which GraphQL queries are classified.
const graphqlMethod = "graphql_query"

// builtinClasses are the method patterns of each class; what none of them matches
// is normal.
var builtinClasses = [numClasses][]string{
	classLight: {
		"eth_chainId", "eth_blockNumber", "eth_syncing", "net_*", "web3_clientVersion", "rpc_modules",
		"*_unsubscribe",
	},
	classCompute: {
		"eth_call", "eth_estimateGas", "eth_createAccessList", "eth_fillTransaction", graphqlMethod,
		"eth_resend", "eth_sendTransaction", "personal_sendTransaction", // estimate the gas that is not given
		"eth_signTransaction",                                          // proves the blobs that come with it
		"debug_getRawBlock", "debug_getRawReceipts", "debug_dbAncient", // megabytes in one piece, which count when they are made
	},
	classHeavy: {
		"debug_trace*", "debug_standardTrace*", "debug_subscribe", // traceChain is debug's one subscription
		"debug_intermediateRoots", "debug_storageRangeAt", "debug_accountRange", "debug_dumpBlock",
		"debug_getModified*", "debug_getBadBlocks", "debug_executionWitness*", "debug_replayBadBlock",
		"debug_getAccessibleState", "debug_chaindbCompact", "debug_printBlock",
		"debug_freeOSMemory", "debug_stacks", "debug_write*", "debug_memStats", // stop the world, or collect all garbage
		"trace_*", "eth_simulateV1", "eth_getProof", "txpool_content*", "txpool_inspect",
	},
	classParked: {
		"eth_sendRawTransactionSync",
		"debug_blockProfile", "debug_cpuProfile", "debug_goTrace", "debug_mutexProfile", // sleep as long as they are told
	},
}

// classifier tells the class of a call from its method and, for the few methods
// whose cost depends on them, from its parameters. It is immutable.
//
// It is meant for methods that the node serves: an unknown one is refused as
// upstream refuses it, before anybody asks for its class, so that no client can
// choose names that are remembered.
type classifier struct {
	given   patternSet // the operator's
	builtin patternSet
}

// patternSet maps method patterns to classes. A full name wins over a prefix, a
// prefix over a suffix, a longer pattern over a shorter one.
type patternSet struct {
	exact    map[string]callClass
	prefixes []classPattern // longest first
	suffixes []classPattern // longest first
}

type classPattern struct {
	text  string // without the star
	class callClass
}

// newClassifier returns a classifier with the built-in patterns and those of
// extra, which all win over the built-in ones. A pattern is a full method name, a
// prefix that ends in a star or a suffix that begins with "*_". One that is
// malformed, or stands in two classes, is refused.
func newClassifier(extra [numClasses][]string) (*classifier, error) {
	given, err := newPatternSet(extra)
	if err != nil {
		return nil, err
	}
	builtin, err := newPatternSet(builtinClasses)
	if err != nil {
		return nil, err
	}
	return &classifier{given: given, builtin: builtin}, nil
}

func newPatternSet(lists [numClasses][]string) (patternSet, error) {
	set := patternSet{exact: make(map[string]callClass)}
	seen := make(map[string]callClass)
	for i, patterns := range lists {
		class := callClass(i)
		for _, p := range patterns {
			if err := checkPattern(p); err != nil {
				return set, fmt.Errorf("--rpc.admission.%v-methods: %w", class, err)
			}
			if other, ok := seen[p]; ok {
				if other != class {
					return set, fmt.Errorf("--rpc.admission.%v-methods: %q is among the %v ones too", class, p, other)
				}
				continue
			}
			seen[p] = class
			switch {
			case p[0] == '*':
				set.suffixes = append(set.suffixes, classPattern{p[1:], class})
			case p[len(p)-1] == '*':
				set.prefixes = append(set.prefixes, classPattern{p[:len(p)-1], class})
			default:
				set.exact[p] = class
			}
		}
	}
	longest := func(a, b classPattern) int { return len(b.text) - len(a.text) }
	slices.SortStableFunc(set.prefixes, longest)
	slices.SortStableFunc(set.suffixes, longest)
	return set, nil
}

func checkPattern(p string) error {
	const maxPattern = 256
	name := p
	switch {
	case strings.HasPrefix(p, "*_"):
		name = p[2:]
	case strings.HasSuffix(p, "*"):
		name = p[:len(p)-1]
	}
	if name == "" || len(p) > maxPattern {
		return fmt.Errorf("%q is no pattern, want a method name, a prefix followed by * or *_ and a suffix", p)
	}
	for _, r := range name {
		if r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			return fmt.Errorf("%q is no pattern: %q is not allowed in a method name", p, r)
		}
	}
	return nil
}

func (set *patternSet) match(method string) (callClass, bool) {
	if class, ok := set.exact[method]; ok {
		return class, true
	}
	for i := range set.prefixes {
		if strings.HasPrefix(method, set.prefixes[i].text) {
			return set.prefixes[i].class, true
		}
	}
	for i := range set.suffixes {
		if strings.HasSuffix(method, set.suffixes[i].text) {
			return set.suffixes[i].class, true
		}
	}
	return classNormal, false
}

// classify returns the class of a call. params is the raw parameter array, which
// must be valid JSON; it is scanned, not decoded, and nothing is allocated. A
// method that the operator named is what the operator says, whatever its
// parameters.
func (c *classifier) classify(method string, params []byte) callClass {
	if class, ok := c.given.match(method); ok {
		return class
	}
	if isRawTransaction(method) && len(params) >= blobParams {
		return classCompute
	}
	if class, ok := c.builtin.match(method); ok {
		return class
	}
	if readsPendingBlock(method, params) {
		return classCompute
	}
	switch method {
	case "eth_getLogs":
		if !narrowLogQuery(params) {
			return classHeavy
		}
	case "eth_getFilterLogs":
		return classHeavy // its width is that of a filter installed earlier
	case "eth_feeHistory":
		if hasPercentiles(params) {
			return classHeavy
		}
	}
	return classNormal
}
