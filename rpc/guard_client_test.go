// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
)

func testKeys(t testing.TB, local bool, trusted ...string) (*clientKeys, *mclock.Simulated) {
	t.Helper()
	clock := new(mclock.Simulated)
	k, err := newClientKeys(trusted, local, clock)
	if err != nil {
		t.Fatal(err)
	}
	return k, clock
}

func forwarded(lines ...string) http.Header {
	return http.Header{"X-Forwarded-For": lines}
}

func TestClientKeys(t *testing.T) {
	for _, test := range []struct {
		name   string
		local  bool
		peer   string
		header http.Header
		want   string
	}{
		{"an address", false, "203.0.113.7:1000", nil, "203.0.113.7"},
		{"a header nobody vouches for", false, "203.0.113.7:1000", forwarded("198.51.100.1"), "203.0.113.7"},
		{"the same address as IPv6", false, "[::ffff:203.0.113.7]:1000", nil, "203.0.113.7"},
		{"an IPv6 site", false, "[2001:db8:1:2:3:4:5:6]:1000", nil, "2001:db8:1:2::/64"},
		{"IPv4 behind NAT64", false, "[64:ff9b::203.0.113.7]:1000", nil, "64:ff9b::cb00:7107"},
		{"a proxy's client", false, "10.0.0.2:1000", forwarded("198.51.100.9"), "198.51.100.9"},
		{"what the client claims", false, "10.0.0.2:1000", forwarded("6.6.6.6, 198.51.100.9"), "198.51.100.9"},
		{"a chain of proxies", false, "10.0.0.2:1000", forwarded("6.6.6.6, 198.51.100.9, 10.0.0.3"), "198.51.100.9"},
		{"a list in several lines", false, "10.0.0.2:1000", forwarded("6.6.6.6", "198.51.100.9", "10.0.0.3"), "198.51.100.9"},
		{"with a port", false, "10.0.0.2:1000", forwarded("198.51.100.9:4711"), "198.51.100.9"},
		{"IPv6 with a port", false, "10.0.0.2:1000", forwarded("[2001:db8::1]:4711"), "2001:db8::/64"},
		{"IPv6 in brackets", false, "10.0.0.2:1000", forwarded("[2001:db8::1]"), "2001:db8::/64"},
		{"a proxy's own call", false, "10.0.0.2:1000", nil, "10.0.0.2:1000"},
		{"only proxies", true, "10.0.0.2:1000", forwarded("10.0.0.4, 10.0.0.3"), "10.0.0.4"},
		{"as long a list as can be believed", false, "10.0.0.2:1000", forwarded("198.51.100.9" + strings.Repeat(", 10.0.0.3", maxForwarded-1)), "198.51.100.9"},
		{"an absurdly long one", false, "10.0.0.2:1000", forwarded("198.51.100.9" + strings.Repeat(", 10.0.0.3", maxForwarded)), "10.0.0.2:1000"},
		{"garbage from a proxy", false, "10.0.0.2:1000", forwarded("198.51.100.9, unknown"), "10.0.0.2:1000"},
		{"nothing from a proxy", false, "10.0.0.2:1000", forwarded(""), "10.0.0.2:1000"},
		{"Docker's bridge", false, "172.17.0.1:1000", nil, "172.17.0.1:1000"},
		{"Docker's bridge, named by a proxy", false, "10.0.0.2:1000", forwarded("172.17.0.1"), "10.0.0.2:1000"},
		{"a header from the bridge", false, "172.17.0.1:1000", forwarded("198.51.100.9"), "172.17.0.1:1000"},
		{"loopback", false, "127.0.0.2:1000", nil, "127.0.0.2:1000"},
		{"loopback as a client", true, "127.0.0.2:1000", nil, "127.0.0.2"},
		{"a zone", false, "[fe80::1%eth0]:1000", nil, "[fe80::1]:1000"},
		{"a Unix socket", false, "@", nil, "local"},
	} {
		k, _ := testKeys(t, test.local, "10.0.0.0/8")
		if got := k.keyFor(test.peer, test.header); got.String() != test.want {
			t.Errorf("%s: key %v, want %s", test.name, got, test.want)
		} else if got.perConn() != strings.Contains(test.want, ":1000") {
			t.Errorf("%s: perConn %v", test.name, got.perConn())
		}
	}
}

// A proxy or Docker's bridge stands for any number of clients. No share is held against
// it, and what one connection behind it takes is that connection's alone.
func TestTrapProxyTakenForOneClient(t *testing.T) {
	k, _ := testKeys(t, false)
	for _, peer := range []string{"127.0.0.1", "172.17.0.1", "10.1.2.3", "192.168.0.9", "169.254.7.7", "[fd00::1]", "[fe80::1]", "[::1]"} {
		one, other := k.keyFor(peer+":1000", nil), k.keyFor(peer+":1001", nil)
		if one == other || !one.perConn() || !other.perConn() {
			t.Errorf("%s: two connections are %v and %v", peer, one, other)
		}
	}
	// Seen from the gate: eight connections of one peer have eight places, and the
	// ninth finds nobody with more than it would have.
	r := newGateRig(t, gateLimits{1, 8, 1, 1, 1})
	for port := range 10 {
		c := &gateCall{class: classCompute, key: k.keyFor(fmt.Sprintf("172.17.0.1:%d", 1000+port), nil), bound: r.clock.Now().Add(time.Hour)}
		waits, why := r.g.arrive(c)
		if want := port < 9; (why == admitted) != want || waits != (port > 0 && want) {
			t.Errorf("connection %d: %v, waits %v", port, why, waits)
		}
	}
}

// An IPv6 prefix must not be taken for one client because sixteen unrelated sites
// spoke from it at some time, nor for sixteen because its owner can.
func TestTrapIPv6PrefixTakenForOneClient(t *testing.T) {
	k, clock := testKeys(t, false)
	site := func(i int) string { return k.keyFor(fmt.Sprintf("[2001:db8:7:%x::1]:1", i), nil).String() }

	clock.Run(time.Hour)
	for i := range foldNetworks - 1 {
		if got, want := site(i), fmt.Sprintf("2001:db8:7:%x::/64", i); got != want && i > 0 {
			t.Fatalf("site %d: %s, want %s", i, got, want)
		}
	}
	for _, i := range []int{15, 16, 999, 3} {
		if got := site(i); got != "2001:db8:7::/48" {
			t.Fatalf("site %d of 16 seen lately: %s, want the /48", i, got)
		}
	}
	if got := k.keyFor("[2001:db8:8:1::1]:1", nil).String(); got != "2001:db8:8:1::/64" {
		t.Fatalf("a neighbour's site: %s", got)
	}
	clock.Run(foldMemory)
	if got := site(3); got != "2001:db8:7:3::/64" {
		t.Fatalf("alone again: %s, want the /64", got)
	}
}

// The owner of a short prefix must not make the node remember without bound.
func TestFoldedPrefixesAreBounded(t *testing.T) {
	k, _ := testKeys(t, false)
	for i := range 3 * foldPrefixes {
		k.foldedKey(netip.MustParseAddr(fmt.Sprintf("2001:%x:%x::1", i>>16, i&0xffff)))
	}
	if len(k.folds) != foldPrefixes || len(k.order) != foldPrefixes {
		t.Fatalf("%d prefixes remembered, %d in order, want %d", len(k.folds), len(k.order), foldPrefixes)
	}
}

func TestTrustedProxyNonsense(t *testing.T) {
	for _, cidr := range []string{"", "10.0.0.0", "10.0.0.0/33", "proxy.example.org/8", "::/129"} {
		if _, err := newClientKeys([]string{cidr}, false, new(mclock.Simulated)); err == nil || !strings.Contains(err.Error(), "CIDR") {
			t.Errorf("%q: error %v", cidr, err)
		}
	}
}

// FuzzForwardedFor: whatever a client writes into the header, the key is either
// what the trusted proxy appended or the connection itself.
func FuzzForwardedFor(f *testing.F) {
	f.Add("198.51.100.9", "")
	f.Add("6.6.6.6, 10.0.0.1", "10.0.0.3")
	f.Add(",,,[::1]:", "::ffff:1.2.3.4%lo")
	f.Fuzz(func(t *testing.T, claimed, line string) {
		k, _ := testKeys(t, false, "10.0.0.0/8")
		header := forwarded(claimed, line, claimed+", 198.51.100.9")
		if got := k.keyFor("10.0.0.2:1000", header).String(); got != "198.51.100.9" {
			t.Fatalf("client %s talked its way past the proxy's entry", got)
		}
		key := k.keyFor("10.0.0.2:1000", forwarded(claimed, line))
		if _, ok := k.forwardedFor(forwarded(claimed, line)); !ok && key.String() != "10.0.0.2:1000" {
			t.Fatalf("unreadable header gave %v", key)
		}
		if key == (clientKey{}) {
			t.Fatal("a remote client has the node's own key")
		}
	})
}
