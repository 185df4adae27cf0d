// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/gorilla/websocket"
)

// Codes with which an endpoint says that it has too much to do.
const (
	errcodeLimitExceeded = -32005 // EIP-1474
	errcodeQueueFull     = -32013
)

// readMethods are the calls that change nothing at the endpoint, neither its chain nor
// its pool nor the state it keeps for a client: sent twice, they do what they do sent
// once. eth_getFilterChanges is not one (it takes the changes away), nor is what installs
// filters or subscriptions, signs or sends.
var readMethods = map[string]struct{}{
	"debug_getRawBlock":                          {},
	"debug_getRawHeader":                         {},
	"debug_getRawReceipts":                       {},
	"debug_getRawTransaction":                    {},
	"debug_traceBlockByHash":                     {},
	"debug_traceBlockByNumber":                   {},
	"debug_traceCall":                            {},
	"debug_traceTransaction":                     {},
	"eth_accounts":                               {},
	"eth_baseFee":                                {},
	"eth_blobBaseFee":                            {},
	"eth_blockNumber":                            {},
	"eth_call":                                   {},
	"eth_chainId":                                {},
	"eth_config":                                 {},
	"eth_createAccessList":                       {},
	"eth_estimateGas":                            {},
	"eth_feeHistory":                             {},
	"eth_gasPrice":                               {},
	"eth_getBalance":                             {},
	"eth_getBlockByHash":                         {},
	"eth_getBlockByNumber":                       {},
	"eth_getBlockReceipts":                       {},
	"eth_getBlockTransactionCountByHash":         {},
	"eth_getBlockTransactionCountByNumber":       {},
	"eth_getCode":                                {},
	"eth_getFilterLogs":                          {},
	"eth_getHeaderByHash":                        {},
	"eth_getHeaderByNumber":                      {},
	"eth_getLogs":                                {},
	"eth_getProof":                               {},
	"eth_getRawTransactionByBlockHashAndIndex":   {},
	"eth_getRawTransactionByBlockNumberAndIndex": {},
	"eth_getRawTransactionByHash":                {},
	"eth_getStorageAt":                           {},
	"eth_getTransactionByBlockHashAndIndex":      {},
	"eth_getTransactionByBlockNumberAndIndex":    {},
	"eth_getTransactionByHash":                   {},
	"eth_getTransactionCount":                    {},
	"eth_getTransactionReceipt":                  {},
	"eth_getUncleByBlockHashAndIndex":            {},
	"eth_getUncleByBlockNumberAndIndex":          {},
	"eth_getUncleCountByBlockHash":               {},
	"eth_getUncleCountByBlockNumber":             {},
	"eth_maxPriorityFeePerGas":                   {},
	"eth_simulateV1":                             {},
	"eth_syncing":                                {},
	"net_listening":                              {},
	"net_peerCount":                              {},
	"net_version":                                {},
	"rpc_modules":                                {},
	"txpool_content":                             {},
	"txpool_contentFrom":                         {},
	"txpool_inspect":                             {},
	"txpool_status":                              {},
	"web3_clientVersion":                         {},
	"web3_sha3":                                  {},
}

// isRead reports whether calls of the method may be repeated, and merged.
func isRead(method string) bool {
	_, ok := readMethods[method]
	return ok
}

// isOverload reports whether err is an endpoint's answer that it has too much to do. It
// pauses the governor.
func isOverload(err error) bool {
	if isGovernorRefusal(err) {
		return false
	}
	var rpcErr Error
	if errors.As(err, &rpcErr) {
		switch rpcErr.ErrorCode() {
		case errcodeLimitExceeded, errcodeQueueFull:
			return true
		}
	}
	var httpErr HTTPError
	if errors.As(err, &httpErr) {
		return httpErr.StatusCode == http.StatusTooManyRequests || httpErr.StatusCode == http.StatusServiceUnavailable
	}
	return false
}

// isEndpointFailure reports whether err says that the endpoint or the way to it failed,
// so that another endpoint, or another attempt, may do better. What the caller did (a
// context that ended, a closed client) and what this process decided is none.
func isEndpointFailure(err error) bool {
	if isGovernorRefusal(err) || errors.Is(err, ErrClientQuit) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	var (
		httpErr  HTTPError
		netErr   net.Error
		closeErr *websocket.CloseError
		syntax   *json.SyntaxError
	)
	switch {
	case errors.As(err, &httpErr):
		return httpErr.StatusCode >= 500 || httpErr.StatusCode == http.StatusRequestTimeout
	case errors.As(err, &netErr), errors.As(err, &closeErr):
		return true
	case errors.As(err, &syntax): // an error page where JSON was expected
		return true
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, errDead) || errors.Is(err, errClientReconnected)
}

// isGovernorRefusal reports whether err is a refusal of a governor in this process. It must never
// count against an endpoint.
func isGovernorRefusal(err error) bool {
	var local *GovernorError
	return errors.As(err, &local)
}

// backoff waits before a call goes back to an endpoint that failed, round being how
// often it has. It reports whether the call is still wanted.
func (g *Governor) backoff(ctx context.Context, round int, quit <-chan struct{}) bool {
	d := g.cfg.Backoff
	for ; round > 1 && d < g.cfg.MaxPause; round-- {
		d = nextBackoff(d, d, g.cfg.MaxPause)
	}
	timer := g.clock.NewTimer(d/2 + time.Duration(g.random()*float64(d/2)))
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
	case <-quit:
	}
	return false
}
