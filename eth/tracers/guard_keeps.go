// SPDX-License-Identifier: LGPL-3.0-or-later

package tracers

import (
	"encoding/json"
	"errors"

	"github.com/ethereum/go-ethereum/core/vm"
)

// What tracers hold for one thing they record, in bytes, beside its data.
const (
	frameOverhead   = 384 // a call frame
	idOverhead      = 96  // a function's name and how often it was called
	logOverhead     = 256 // a log
	slotOverhead    = 256 // a storage slot of a prestate
	hashOverhead    = 128 // a hash and where its preimage is
	accountOverhead = 24 << 10
	coldSlotGas     = 2000 // below the price of the first access to a slot or account
)

// maxMux is how deep tracers may be put into tracers. Upstream parses what is inside
// once a level, so that ten thousand of them cost minutes before the trace begins.
const maxMux = 8

var errMuxTooDeep = errors.New("muxTracer: more than 8 tracers inside each other")

// keeps is how many copies a tracer keeps of what it sees. Of a transaction with 1000
// calls of 1 MiB each noopTracer keeps nothing, callTracer 1 GiB, and a muxTracer with
// callTracer and flatCallTracer in it twice that.
//
// What JavaScript keeps is its own business; a fork's native tracer that is not known
// here is taken for one that keeps everything.
type keeps struct {
	frames int64 // of call frames with their data and logs
	top    int64 // of the outermost frame
	ids    int64 // of the names of called functions
	slots  int64 // of the slots and accounts that are touched
	hashed int64 // of what is hashed
}

// keepsOf tells what a tracer keeps from its name and its configuration.
func keepsOf(name string, cfg json.RawMessage, depth int) (k keeps, err error) {
	switch name {
	case "noopTracer":
	case "4byteTracer":
		k.ids = 1
	case "callTracer":
		var c struct{ OnlyTopCall bool }
		if json.Unmarshal(cfg, &c) == nil && c.OnlyTopCall {
			k.top = 1
		} else {
			k.frames = 1
		}
	case "flatCallTracer":
		k.frames = 1
	case "prestateTracer":
		k.slots = 1
	case "keccak256PreimageTracer":
		k.hashed = 1
	case "muxTracer":
		if depth >= maxMux {
			return k, errMuxTooDeep
		}
		var inner map[string]json.RawMessage
		if json.Unmarshal(cfg, &inner) != nil {
			return k, nil // upstream says what is wrong with it
		}
		for name, cfg := range inner {
			one, err := keepsOf(name, cfg, depth+1)
			if err != nil {
				return k, err
			}
			k.frames += one.frames
			k.top += one.top
			k.ids += one.ids
			k.slots += one.slots
			k.hashed += one.hashed
		}
	default:
		if !DefaultDirectory.IsJS(name) {
			k = keeps{frames: 1, slots: 1, hashed: 1}
		}
	}
	return k, nil
}

// framesAt returns how many copies are kept of a call frame at a depth.
func (k *keeps) framesAt(depth int) int64 {
	if depth == 0 {
		return k.frames + k.top
	}
	return k.frames
}

func (m *traceMeter) enter(depth int, input []byte) {
	n := m.keeps.framesAt(depth)
	if n+m.keeps.ids > 0 {
		m.add(2*n*int64(len(input)), n*frameOverhead+m.keeps.ids*idOverhead)
	}
}

func (m *traceMeter) exit(depth int, output []byte) {
	if n := m.keeps.framesAt(depth); n > 0 {
		m.add(2*n*int64(len(output)), 0)
	}
}

// log counts a log with bytes of data and a number of topics.
func (m *traceMeter) log(data, topics int) {
	if n := m.keeps.frames; n > 0 {
		m.add(n*(2*int64(data)+70*int64(topics)), n*logOverhead)
	}
}

// opcode counts what is hashed, and a first access to a slot or an account, which is
// told by its price: what was accessed before costs 100.
func (m *traceMeter) opcode(op vm.OpCode, cost uint64, scope opScope) {
	switch op {
	case vm.KECCAK256:
		if n := m.keeps.hashed; n > 0 {
			stack := stackOf(scope)
			if len(stack) < 2 {
				return // the machine is about to fail
			}
			// The price is paid for the size, so what was charged for it fits.
			if size := &stack[len(stack)-2]; size.IsUint64() && size.Uint64() < 6*cost {
				m.add(2*n*int64(size.Uint64()), n*(hashOverhead+int64(size.Uint64())))
			}
		}
	case vm.SLOAD, vm.SSTORE:
		if m.keeps.slots > 0 && cost >= coldSlotGas {
			m.add(0, m.keeps.slots*slotOverhead)
		}
	case vm.BALANCE, vm.EXTCODESIZE, vm.EXTCODECOPY, vm.EXTCODEHASH,
		vm.CALL, vm.CALLCODE, vm.DELEGATECALL, vm.STATICCALL, vm.SELFDESTRUCT:
		if m.keeps.slots > 0 && cost >= coldSlotGas {
			m.add(0, m.keeps.slots*accountOverhead) // its code may be in the result
		}
	}
}
