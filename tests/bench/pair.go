// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"

	"rpcguard/tests/slowclient/rig"
)

// side is one of the two nodes.
type side struct {
	name   string // "stock" or "ours"
	binary *rig.Binary
	node   *rig.Node
	watch  *rig.Watch

	account *rig.Account
	logger  common.Address // emits as many logs as its argument says
	burner  common.Address // loops as often as its argument says
	full    uint64         // number of a block with blockTxs transfers
	logged  uint64         // number of a block with blockLogs logs
}

const (
	blockTxs  = 500 // about 170 KB with full transactions
	blockLogs = 100
)

// burnerCode counts its argument down to zero, at about 45 gas a turn.
var burnerCode = common.FromHex("6000355b600190038060035700")

// The keys of the developer and of the account are the same on both sides, run for run:
// how deep an address lies in the state's trie, and how wide the nodes above it are,
// decides about some percent of what it costs to read a balance.
var (
	developerKey = benchKey("developer")
	accountKey   = benchKey("account")
)

func benchKey(name string) *ecdsa.PrivateKey {
	key, err := crypto.ToECDSA(crypto.Keccak256([]byte("rpcguard bench " + name)))
	if err != nil {
		panic(err)
	}
	return key
}

// start starts the node and makes a chain for the requests.
func (s *side) start(ctx context.Context, period int, flags []string) (err error) {
	// Loopback is one proxy by default. The rig makes it many clients, for its
	// attackers; here every flag of ours is at its default.
	flags = append([]string{"rpc.client.local=false"}, flags...)
	cfg := rig.NodeConfig{Period: period, Flags: flags, DevKey: developerKey, Timeout: 3 * time.Minute}
	if s.node, err = rig.StartNode(s.binary, cfg); err != nil {
		return err
	}
	s.watch = rig.NewWatch(s.node, 3<<30) // more than this and it is stopped
	if s.account, err = rig.NewAccountOf(ctx, s.node, accountKey); err != nil {
		return err
	}
	if s.logger, err = s.account.Logger(ctx); err != nil {
		return err
	}
	s.burner, err = s.account.Deploy(ctx, burnerCode)
	return err
}

// fill makes the blocks that the requests read.
func (s *side) fill(ctx context.Context) error {
	if err := s.mineLogs(ctx, blockLogs); err != nil {
		return err
	}
	// All transactions enter the pool in one batch, to be mined together.
	to := common.HexToAddress("0xdd")
	var last *types.Transaction
	for try := 0; try < 5; try++ {
		var calls [][]byte
		for range blockTxs {
			last = s.account.Sign(&to, nil, 21000)
			calls = append(calls, rig.RawTx(1, last))
		}
		c := rig.NewHTTP(s.node.HTTP, rig.Dialer{})
		_, _, _, err := c.Post(ctx, rig.Batch(calls...))
		c.Close()
		if err != nil {
			return err
		}
		if s.full, err = s.account.Mined(ctx, last); err != nil {
			return err
		}
		if n, err := s.txsOf(ctx, s.full); err != nil || n == blockTxs {
			return err
		}
	}
	return errors.New("no block took all transactions")
}

func (s *side) mineLogs(ctx context.Context, n uint64) error {
	tx := s.account.LogTx(s.logger, n)
	if err := s.account.Send(ctx, tx); err != nil {
		return err
	}
	number, err := s.account.Mined(ctx, tx)
	s.logged = number
	return err
}

func (s *side) txsOf(ctx context.Context, number uint64) (int, error) {
	c := rig.NewHTTP(s.node.HTTP, rig.Dialer{})
	defer c.Close()
	r, err := c.Call(ctx, "eth_getBlockTransactionCountByNumber", fmt.Sprintf("%#x", number))
	if err != nil {
		return 0, err
	}
	var n int
	_, err = fmt.Sscanf(r.Text(), "0x%x", &n)
	return n, err
}

func (s *side) stop() {
	if s.watch != nil {
		s.watch.Stop()
	}
	if s.node != nil {
		s.node.Stop()
	}
}

func (s *side) cpu() time.Duration {
	l, _ := rig.Look(s.node.Pid)
	return l.CPU
}

// profile saves the node's processor profile of the next d, for go tool pprof.
func (s *side) profile(dir, name string, d time.Duration) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	resp, err := http.Get(fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", s.node.Debug, max(1, int(d.Seconds()))))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	f, err := os.Create(filepath.Join(dir, name+"-"+s.name+".pprof"))
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(f, resp.Body)
	return err
}

// inTurn takes rounds samples of each side, alternating who goes first.
func inTurn(ctx context.Context, rounds int, stock, ours *side, sample func(*side) error) error {
	for r := range rounds {
		first, second := stock, ours
		if r%2 == 1 {
			first, second = ours, stock
		}
		for _, s := range []*side{first, second} {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if !s.node.Alive() {
				return fmt.Errorf("%s: the node has ended (%v; memory %d MB)", s.name, s.node.Err(), s.watch.Peak()>>20)
			}
			if err := sample(s); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	return nil
}
