// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
)

// hoardService has subscriptions and polling filters that keep a text.
type hoardService struct {
	mu      sync.Mutex
	filters map[ID]string
}

func (s *hoardService) Hoard(ctx context.Context, text string) (*Subscription, error) {
	n, _ := NotifierFromContext(ctx)
	sub := n.CreateSubscription()
	n.Notify(sub.ID, "first")
	return sub, nil
}

func (s *hoardService) NewFilter(text string) (ID, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := NewID()
	s.filters[id] = text
	return id, nil
}

func (s *hoardService) UninstallFilter(id ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.filters[id]
	delete(s.filters, id)
	return ok
}

func (s *hoardService) PollingFilters() (PollingFilters, bool)       { return s, true }
func (s *hoardService) Limit(id ID, client any, limits FilterLimits) {}
func (s *hoardService) Uninstall(id ID)                              { s.UninstallFilter(id) }
func (s *hoardService) Forget(ID)                                    {}

func (s *hoardService) Alive(ids []ID) []bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	alive := make([]bool, len(ids))
	for i, id := range ids {
		_, alive[i] = s.filters[id]
	}
	return alive
}

type hoardServer struct {
	*feedServer
	hoard *hoardService
}

// newHoardServer serves under a budget of 1 MiB, of which large parameters may
// take three quarters: five of 150000 bytes.
func newHoardServer(t *testing.T, change func(*GuardConfig)) *hoardServer {
	cfg := testGuardConfig()
	cfg.Sub.Budget = 1 << 20
	if change != nil {
		change(&cfg)
	}
	s := &hoardServer{newFeedServer(t, cfg), &hoardService{filters: make(map[ID]string)}}
	require.NoError(t, s.srv.RegisterName("eth", s.hoard))
	return s
}

// dialFrom returns a client with an address of its own.
func (s *hoardServer) dialFrom(t *testing.T, ip string) *rawClient {
	dialer := websocket.Dialer{NetDial: func(network, addr string) (net.Conn, error) {
		return (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}).Dial(network, addr)
	}}
	conn, _, err := dialer.Dial(s.url, nil)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return &rawClient{t: t, Conn: conn}
}

func (s *hoardServer) inUse() int64 { return s.guard.kept.stats().InUse }

var hoard = strings.Repeat("x", 150000)

// What a call leaves behind is charged after the call's own bytes are free, and
// refused with the numbers; everything returns with its end.
func TestGuardKeptBytesAreBounded(t *testing.T) {
	for _, kind := range []string{"subscription", "filter"} {
		t.Run(kind, func(t *testing.T) {
			s := newHoardServer(t, nil)
			c := s.dialFrom(t, "127.0.0.1")
			open := func() rawMessage {
				if kind == "filter" {
					reply, _ := c.call("eth_newFilter", hoard)
					return reply
				}
				reply, _ := c.call("eth_subscribe", "hoard", hoard)
				return reply
			}
			var id ID
			for range 5 {
				reply := open()
				require.Nil(t, reply.Error)
				require.NoError(t, json.Unmarshal(reply.Result, &id))
			}
			require.Greater(t, s.inUse(), int64(5*(len(hoard)+keptBase)))
			reply := open()
			require.NotNil(t, reply.Error)
			require.Equal(t, errcodeBudget, reply.Error.Code)
			require.EqualValues(t, 1<<20, reply.Error.Data.(map[string]any)["limit"])

			// Short ones have a part of their own.
			require.NotEmpty(t, c.subscribe())

			end := "eth_unsubscribe"
			if kind == "filter" {
				end = "eth_uninstallFilter"
			}
			reply, _ = c.call(end, id)
			require.Equal(t, "true", string(reply.Result))
			require.Nil(t, open().Error, "an end makes room")
			if kind == "subscription" {
				c.Close()
				eventually(t, "the bytes of a connection that is gone", func() bool { return s.inUse() == 0 })
			}
		})
	}
}

// One client may take all that is idle, and loses its oldest when another one
// comes. It is told so, and only it.
func TestGuardKeptBytesAreShared(t *testing.T) {
	s := newHoardServer(t, func(cfg *GuardConfig) { cfg.Sub.Overflow = "unsubscribe" })
	hog, other := s.dialFrom(t, "127.0.0.2"), s.dialFrom(t, "127.0.0.3")
	var oldest ID
	for i := range 5 {
		reply, _ := hog.call("eth_subscribe", "hoard", hoard)
		require.Nil(t, reply.Error)
		if i == 0 {
			require.NoError(t, json.Unmarshal(reply.Result, &oldest))
		}
	}
	reply, _ := other.call("eth_subscribe", "hoard", hoard)
	require.Nil(t, reply.Error)
	for {
		msg := hog.read()
		if msg.Params.Error == nil {
			continue // the first event of each
		}
		require.Equal(t, oldest, msg.Params.Subscription)
		require.Equal(t, errcodeSubscriptionDropped, msg.Params.Error.Code)
		require.Equal(t, "displaced", msg.Params.Error.Data.(map[string]any)["reason"])
		break
	}
	require.EqualValues(t, 1, s.guard.subs.dropped.Load())

	// Two clients cannot displace each other in turn.
	for range 2 {
		reply, _ = other.call("eth_subscribe", "hoard", hoard)
	}
	require.NotNil(t, reply.Error)
}

// A polling filter that is displaced is uninstalled, and so is its place.
func TestGuardKeptFilterIsDisplaced(t *testing.T) {
	s := newHoardServer(t, nil)
	hog, other := s.dialFrom(t, "127.0.0.2"), s.dialFrom(t, "127.0.0.3")
	for range 5 {
		reply, _ := hog.call("eth_newFilter", hoard)
		require.Nil(t, reply.Error)
	}
	reply, _ := other.call("eth_newFilter", hoard)
	require.Nil(t, reply.Error)
	require.Equal(t, []bool{true}, s.hoard.Alive([]ID{idOf(t, reply)}))
	require.Len(t, s.hoard.filters, 5)
	s.guard.filters.mu.Lock()
	defer s.guard.filters.mu.Unlock()
	require.Equal(t, 5, s.guard.filters.taken)
}

// Filters expire without a word; what they kept must not stay charged for ever.
func TestGuardKeptBytesOfExpiredFilters(t *testing.T) {
	s := newHoardServer(t, nil)
	c := s.dialFrom(t, "127.0.0.1")
	for range 5 {
		reply, _ := c.call("eth_newFilter", hoard)
		require.Nil(t, reply.Error)
	}
	s.hoard.mu.Lock()
	clear(s.hoard.filters)
	s.hoard.mu.Unlock()
	s.guard.filters.mu.Lock()
	s.guard.filters.swept -= 2 * 1e9 // the pause between two searches is over
	s.guard.filters.mu.Unlock()
	reply, _ := c.call("eth_newFilter", hoard)
	require.Nil(t, reply.Error)
	require.Less(t, s.inUse(), int64(2*len(hoard)))
}

// Nothing is charged for a subscription that fails, for trusted clients, and in a
// dry run all is let in.
func TestGuardKeptBytesExceptions(t *testing.T) {
	s := newHoardServer(t, nil)
	c := s.dialFrom(t, "127.0.0.1")
	reply, _ := c.call("eth_subscribe", "broken")
	require.NotNil(t, reply.Error)
	reply, _ = c.call("eth_subscribe", "hoard", 1)
	require.NotNil(t, reply.Error)
	eventually(t, "failed subscriptions", func() bool { return s.inUse() == 0 })

	s = newHoardServer(t, func(cfg *GuardConfig) { cfg.DryRun = true })
	c = s.dialFrom(t, "127.0.0.1")
	for range 8 {
		reply, _ := c.call("eth_subscribe", "hoard", hoard)
		require.Nil(t, reply.Error)
	}
	require.Positive(t, s.guard.kept.stats().Refused)
}

func idOf(t *testing.T, reply rawMessage) (id ID) {
	t.Helper()
	require.NoError(t, json.Unmarshal(reply.Result, &id))
	return id
}
