// SPDX-License-Identifier: LGPL-3.0-or-later

package graphql

import (
	"context"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/internal/ethapi"
	"github.com/ethereum/go-ethereum/rpc"
	"github.com/graph-gophers/graphql-go/trace"
)

// The library makes the whole answer of a query in memory, in buffers that are copied into
// those of the field above, before a byte of it is written: {blocks(from:0){transactions
// {inputData}}} is a chain in memory. So a query counts what it builds while it does, with
// the meter of its call (rpc.BuildMeter), and ends when that says so.
//
// # Model
//
//	each field            fieldSize, whatever it is
//	bytes of a value      twice their number as reply, and copyShare times beside it
//	a block, its header,  what the backend has loaded: they are kept for as long
//	its receipts          as the query runs
//
// In numbers: 300 times the same block of 15 transactions with 1 MB of input data in all
// are 300 x (1 MB x 8 + 1 MB of block), 2.6 GiB: refused after some 50 of them. The hash of
// each of 200 transactions of 100 blocks is 20000 x 512 bytes and the blocks themselves.
//
// Without a guard, and for trusted servers, there is no meter and nothing is counted.
const (
	fieldSize  = 512
	copyShare  = 6
	headerSize = 1 << 10
	loadedItem = 512 // a transaction or a log, beside its bytes
)

// meteredFields counts the fields of queries. It is otherwise the library's default.
type meteredFields struct{ trace.OpenTracingTracer }

// TraceField implements trace.Tracer. A field whose context has ended is not resolved.
func (t meteredFields) TraceField(ctx context.Context, label, typeName, fieldName string, trivial bool, args map[string]interface{}) (context.Context, trace.TraceFieldFinishFunc) {
	rpc.BuildMeterFromContext(ctx).Hold(fieldSize)
	return t.OpenTracingTracer.TraceField(ctx, label, typeName, fieldName, trivial, args)
}

// chargeBytes counts a value of bytes, and returns nothing in its place if it does not fit:
// the query has ended then.
func chargeBytes(ctx context.Context, b hexutil.Bytes) hexutil.Bytes {
	m, n := rpc.BuildMeterFromContext(ctx), int64(len(b))
	if m.Add(2*n) != nil || m.Hold(copyShare*n) != nil {
		return nil
	}
	return b
}

// Code stands in front of upstream's resolver of that name, as do those below.
func (a *Account) Code(ctx context.Context) (hexutil.Bytes, error) {
	b, err := a.codeUnguarded(ctx)
	return chargeBytes(ctx, b), err
}

// Data returns the data of a log.
func (l *Log) Data(ctx context.Context) hexutil.Bytes {
	return chargeBytes(ctx, l.dataUnguarded(ctx))
}

// InputData returns the input of a transaction.
func (t *Transaction) InputData(ctx context.Context) hexutil.Bytes {
	return chargeBytes(ctx, t.inputDataUnguarded(ctx))
}

// Raw returns the encoding of a transaction.
func (t *Transaction) Raw(ctx context.Context) (hexutil.Bytes, error) {
	b, err := t.rawUnguarded(ctx)
	return chargeBytes(ctx, b), err
}

// RawReceipt returns the encoding of a transaction's receipt.
func (t *Transaction) RawReceipt(ctx context.Context) (hexutil.Bytes, error) {
	b, err := t.rawReceiptUnguarded(ctx)
	return chargeBytes(ctx, b), err
}

// Raw returns the encoding of a block.
func (b *Block) Raw(ctx context.Context) (hexutil.Bytes, error) {
	raw, err := b.rawUnguarded(ctx)
	return chargeBytes(ctx, raw), err
}

// Data returns what a call has returned.
func (c *CallResult) Data(ctx context.Context) hexutil.Bytes {
	return chargeBytes(ctx, c.dataUnguarded())
}

// meteredBackend counts what it loads for queries.
type meteredBackend struct{ ethapi.Backend }

// HeaderByNumberOrHash implements ethapi.Backend.
func (b meteredBackend) HeaderByNumberOrHash(ctx context.Context, at rpc.BlockNumberOrHash) (*types.Header, error) {
	if err := rpc.BuildMeterFromContext(ctx).Hold(headerSize); err != nil {
		return nil, err
	}
	return b.Backend.HeaderByNumberOrHash(ctx, at)
}

// BlockByNumberOrHash implements ethapi.Backend.
func (b meteredBackend) BlockByNumberOrHash(ctx context.Context, at rpc.BlockNumberOrHash) (*types.Block, error) {
	block, err := b.Backend.BlockByNumberOrHash(ctx, at)
	if err != nil || block == nil {
		return block, err
	}
	return block, rpc.BuildMeterFromContext(ctx).Hold(int64(block.Size()) + int64(len(block.Transactions()))*loadedItem)
}

// GetReceipts implements ethapi.Backend.
func (b meteredBackend) GetReceipts(ctx context.Context, hash common.Hash) (types.Receipts, error) {
	receipts, err := b.Backend.GetReceipts(ctx, hash)
	if err != nil {
		return receipts, err
	}
	size := int64(0)
	for _, r := range receipts {
		size += headerSize
		for _, l := range r.Logs {
			size += loadedItem + int64(len(l.Data))
		}
	}
	return receipts, rpc.BuildMeterFromContext(ctx).Hold(size)
}
