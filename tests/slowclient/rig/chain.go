// SPDX-License-Identifier: LGPL-3.0-or-later

package rig

import (
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"fmt"
	"math/big"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/common/hexutil"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
)

// Account signs and sends transactions of its own, in the order of their nonces.
type Account struct {
	Addr common.Address

	key    *ecdsa.PrivateKey
	signer types.Signer
	price  *big.Int // wei per gas
	rpc    *HTTP

	mu    sync.Mutex
	nonce uint64
}

// logger emits as many logs as its first calldata word says: a loop around LOG1
// with the counter as topic.
//
//	PUSH1 0 CALLDATALOAD  3:JUMPDEST  DUP1 ISZERO PUSH1 22 JUMPI
//	DUP1 PUSH1 0 PUSH1 0 LOG1  PUSH1 1 SWAP1 SUB PUSH1 3 JUMP  22:JUMPDEST STOP
var loggerCode = common.FromHex("6000355b80156016578060006000a1600190036003565b00")

// NewAccount makes an account on the node's chain, with money of the developer's.
func NewAccount(ctx context.Context, n *Node) (*Account, error) {
	key, err := crypto.GenerateKey()
	if err != nil {
		return nil, err
	}
	return NewAccountOf(ctx, n, key)
}

// NewAccountOf is NewAccount with a key that the caller has, for chains that are to be
// alike.
func NewAccountOf(ctx context.Context, n *Node, key *ecdsa.PrivateKey) (*Account, error) {
	a := &Account{Addr: crypto.PubkeyToAddress(key.PublicKey), key: key, price: big.NewInt(20e9), rpc: NewHTTP(n.HTTP, Dialer{})}
	if n.Binary != nil && n.Binary.Server() {
		a.price.SetInt64(30e9) // bor takes nothing below 25, whatever its flags say
	}
	id, err := a.rpc.Call(ctx, "eth_chainId")
	if err != nil {
		return nil, err
	}
	chain, err := hexutil.DecodeBig(id.Text())
	if err != nil {
		return nil, fmt.Errorf("eth_chainId: %q: %w", id.Text(), err)
	}
	a.signer = types.LatestSignerForChainID(chain)
	acc, err := a.rpc.Call(ctx, "eth_accounts")
	if err != nil {
		return nil, err
	}
	var accounts []common.Address
	if json.Unmarshal(acc.Result, &accounts); len(accounts) == 0 {
		return nil, fmt.Errorf("the node has no developer account")
	}
	r, err := a.rpc.Call(ctx, "eth_sendTransaction", map[string]any{
		"from": accounts[0], "to": a.Addr, "value": "0x3635c9adc5dea0000000", "gas": "0x5208",
	})
	if err != nil {
		return nil, err
	}
	if r.Err != nil {
		return nil, fmt.Errorf("funding: %w", r.Err)
	}
	if _, err := receipt(ctx, a.rpc, r.Text()); err != nil {
		return nil, fmt.Errorf("funding: %w", err)
	}
	// The transaction pool learns of the money a moment after the receipt is there.
	first := a.Sign(&a.Addr, nil, 21000)
	Until(ctx, 10*time.Second, func() bool { err = a.Send(ctx, first); return err == nil })
	if err != nil {
		return nil, fmt.Errorf("funding: %w", err)
	}
	return a, nil
}

type receiptInfo struct {
	BlockNumber     hexutil.Uint64  `json:"blockNumber"`
	ContractAddress *common.Address `json:"contractAddress"`
	Status          hexutil.Uint64  `json:"status"`
}

func receipt(ctx context.Context, c *HTTP, hash string) (*receiptInfo, error) {
	var last any
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end) && ctx.Err() == nil; {
		r, err := c.Call(ctx, "eth_getTransactionReceipt", hash)
		last = err
		if err == nil && len(r.Result) > 4 {
			info := new(receiptInfo)
			if err := json.Unmarshal(r.Result, info); err != nil {
				return nil, err
			}
			if info.Status != 1 {
				return info, fmt.Errorf("transaction %s failed", hash)
			}
			return info, nil
		}
		Sleep(ctx, 50*time.Millisecond)
	}
	return nil, fmt.Errorf("transaction %s was not mined (%v)", hash, last)
}

// Sign makes the account's next transaction. To nil deploys data.
func (a *Account) Sign(to *common.Address, data []byte, gas uint64) *types.Transaction {
	a.mu.Lock()
	nonce := a.nonce
	a.nonce++
	a.mu.Unlock()
	return a.SignNonce(nonce, to, data, gas)
}

// SignNonce makes a transaction with a nonce of the caller's choice.
func (a *Account) SignNonce(nonce uint64, to *common.Address, data []byte, gas uint64) *types.Transaction {
	return types.MustSignNewTx(a.key, a.signer, &types.LegacyTx{
		Nonce: nonce, GasPrice: a.price, Gas: gas, To: to, Data: data,
	})
}

// RawTx encodes eth_sendRawTransaction.
func RawTx(id int, tx *types.Transaction) []byte {
	raw, err := tx.MarshalBinary()
	if err != nil {
		panic(err) // a transaction we signed
	}
	return Call(id, "eth_sendRawTransaction", hexutil.Encode(raw))
}

// Send sends it and fails unless the node took it.
func (a *Account) Send(ctx context.Context, tx *types.Transaction) error {
	_, r, err := a.rpc.Send(ctx, RawTx(1, tx))
	if err != nil {
		return err
	}
	if r.Err != nil {
		return r.Err
	}
	return nil
}

// Mined waits for the transaction's receipt and tells its block.
func (a *Account) Mined(ctx context.Context, tx *types.Transaction) (uint64, error) {
	info, err := receipt(ctx, a.rpc, tx.Hash().Hex())
	if err != nil {
		return 0, err
	}
	return uint64(info.BlockNumber), nil
}

// BigTx makes a transaction with size bytes of zeros as calldata, to nobody.
func (a *Account) BigTx(size int) *types.Transaction {
	return a.Sign(&sink, make([]byte, size), 60000+uint64(size)*10)
}

var sink = common.HexToAddress("0xdd")

// Logger deploys the contract that emits logs.
func (a *Account) Logger(ctx context.Context) (common.Address, error) {
	return a.Deploy(ctx, loggerCode)
}

// LogTx makes a transaction that emits k logs.
func (a *Account) LogTx(logger common.Address, k uint64) *types.Transaction {
	return a.Sign(&logger, common.LeftPadBytes(new(big.Int).SetUint64(k).Bytes(), 32), 50000+k*900)
}

// Resync takes the nonce from the chain, after a node lost transactions.
func (a *Account) Resync(ctx context.Context) error {
	r, err := a.rpc.Call(ctx, "eth_getTransactionCount", a.Addr, "pending")
	if err != nil {
		return err
	}
	n, err := hexutil.DecodeUint64(r.Text())
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.nonce = n
	a.mu.Unlock()
	return nil
}

// Deploy puts code on the chain as it is.
func (a *Account) Deploy(ctx context.Context, code []byte) (common.Address, error) {
	// PUSH1 len, DUP1, PUSH1 11, PUSH1 0, CODECOPY, PUSH1 0, RETURN
	init := append([]byte{0x60, byte(len(code)), 0x80, 0x60, 11, 0x60, 0, 0x39, 0x60, 0, 0xf3}, code...)
	tx := a.Sign(nil, init, 300000)
	if err := a.Send(ctx, tx); err != nil {
		return common.Address{}, err
	}
	info, err := receipt(ctx, a.rpc, tx.Hash().Hex())
	if err != nil {
		return common.Address{}, err
	}
	if info.ContractAddress == nil {
		return common.Address{}, fmt.Errorf("no contract in the receipt")
	}
	return *info.ContractAddress, nil
}

// MinedIn waits for a transaction's receipt, failed or not, and tells its block.
func MinedIn(ctx context.Context, c *HTTP, hash common.Hash) (uint64, error) {
	info, err := receipt(ctx, c, hash.Hex())
	if info == nil {
		return 0, err
	}
	return uint64(info.BlockNumber), nil
}
