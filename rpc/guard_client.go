// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ethereum/go-ethereum/common/mclock"
)

// clientKey names one client of the node's shared capacities. It is comparable
// and three words of plain memory, which a map hashes in one go. The zero key is
// the node itself and those it trusts.
type clientKey struct {
	hi, lo uint64 // address, in the form of IPv6
	kind   uint64 // keyKind, and for keyConn the port above it
}

type keyKind uint64

const (
	keyTrusted keyKind = iota
	keyAddr            // one address
	keyNet64           // an IPv6 network of one site
	keyNet48           // an IPv6 prefix that holds many such networks
	keyConn            // one connection of a peer that stands for many clients
)

// clientOf returns the key of a client known by its address alone.
func clientOf(addr netip.Addr) clientKey {
	b := addr.As16()
	return clientKey{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:]), uint64(keyAddr)}
}

// perConn reports whether the key stands for one connection only, because the
// peer is a proxy in front of any number of clients. No limit per client
// applies to such a key.
func (k clientKey) perConn() bool { return keyKind(k.kind&0xff) == keyConn }

// String returns the address, network or connection that the key stands for.
func (k clientKey) String() string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], k.hi)
	binary.BigEndian.PutUint64(b[8:], k.lo)
	addr := netip.AddrFrom16(b).Unmap()
	switch keyKind(k.kind & 0xff) {
	case keyAddr:
		return addr.String()
	case keyNet64:
		return netip.PrefixFrom(addr, 64).String()
	case keyNet48:
		return netip.PrefixFrom(addr, 48).String()
	case keyConn:
		return netip.AddrPortFrom(addr, uint16(k.kind>>8)).String()
	default:
		return "local"
	}
}

const (
	foldNetworks = 16               // networks of a /48 seen together that make it one client
	foldMemory   = 10 * time.Minute // how long a network counts as seen
	foldPrefixes = 4096             // prefixes remembered, about 1 MiB
	maxForwarded = 32               // entries of X-Forwarded-For looked at

	nat64Network = 0x0064ff9b_00000000 // 64:ff9b::/64, the well-known prefix of NAT64
)

// clientKeys tells clients apart by what the network says of them.
//
// # Model
//
// A client is the remote IP of its connection. Behind a peer within the trusted
// prefixes it is the right-most address of X-Forwarded-For that is not itself
// trusted: everything left of that one was written by the client.
//
// An IPv6 site owns a /64 and may speak from any address in it, so the /64 is the
// client; whoever owns a shorter prefix owns thousands of those, so a /48 that
// shows 16 of them within 10 minutes is one client until it shows fewer.
//
// Loopback, private and link-local peers, and trusted proxies that say nothing
// of use, are each a proxy and not a client: a reverse proxy on the same host,
// Docker's bridge, a load balancer. All of the node's users may be behind one, so
// their connections are told apart and nothing else. With Local they are clients
// like any other.
//
// # Worked example
//
// With 10.0.0.0/8 trusted: peer 203.0.113.7 is client 203.0.113.7 whatever header
// it sends. Peer 10.0.0.2 with "6.6.6.6, 198.51.100.9, 10.0.0.3" is client
// 198.51.100.9: 10.0.0.3 is a proxy of ours and 6.6.6.6 is what the client claimed.
// Peer 10.0.0.2 without the header is connection 10.0.0.2:51234.
//
// # Non-goals
//
// It does not tell the users of one NAT apart, and reads no header but this one.
type clientKeys struct {
	trusted []netip.Prefix
	local   bool
	clock   mclock.Clock

	mu    sync.Mutex
	folds map[uint64]*foldedPrefix // by the first 48 bits
	order []uint64                 // of folds, a ring in order of arrival
	next  int
}

// foldedPrefix remembers which networks of a /48 were seen when.
type foldedPrefix struct {
	network [foldNetworks]uint64
	seen    [foldNetworks]mclock.AbsTime // 0: free
}

// newClientKeys returns the keys for a node whose proxies speak from the given
// CIDRs. A CIDR that does not parse is refused with its text.
func newClientKeys(trusted []string, local bool, clock mclock.Clock) (*clientKeys, error) {
	k := &clientKeys{local: local, clock: clock, folds: make(map[uint64]*foldedPrefix)}
	for _, cidr := range trusted {
		p, err := netip.ParsePrefix(strings.TrimSpace(cidr))
		if err != nil {
			return nil, fmt.Errorf("trusted proxy %q is not a CIDR such as 10.0.0.0/8", cidr)
		}
		if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
		}
		k.trusted = append(k.trusted, p.Masked())
	}
	return k, nil
}

// keyFor returns the key of the client behind a connection from remoteAddr, a
// host:port pair, that sent the given header (nil: none). It is called once a
// request over HTTP and once a connection on streams.
func (k *clientKeys) keyFor(remoteAddr string, header http.Header) clientKey {
	peer, err := netip.ParseAddrPort(remoteAddr)
	if err != nil {
		return clientKey{} // a pipe or a Unix socket
	}
	addr := peer.Addr().WithZone("").Unmap()
	if k.isTrusted(addr) {
		client, ok := k.forwardedFor(header)
		if !ok {
			return connKey(addr, peer.Port())
		}
		addr = client
	}
	if !k.local && isLocal(addr) {
		// Also when a proxy names it: what such a proxy saw was another proxy.
		peerAddr := peer.Addr().WithZone("").Unmap()
		return connKey(peerAddr, peer.Port())
	}
	if addr.Is4() || isLocal(addr) {
		return clientOf(addr)
	}
	return k.foldedKey(addr)
}

func connKey(addr netip.Addr, port uint16) clientKey {
	key := clientOf(addr)
	key.kind = uint64(keyConn) | uint64(port)<<8
	return key
}

func (k *clientKeys) isTrusted(addr netip.Addr) bool {
	for _, p := range k.trusted {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// isLocal reports whether an address may stand for any number of clients.
func isLocal(addr netip.Addr) bool {
	return addr.IsLoopback() || addr.IsPrivate() || addr.IsLinkLocalUnicast() || addr.IsUnspecified()
}

// forwardedFor returns the right-most address of X-Forwarded-For that is not a
// trusted proxy's, or the left-most one if all are. Several header lines are one
// list. It returns false if an entry on the way does not parse, since nothing
// left of it can be believed, and if the list is empty or absurdly long.
func (k *clientKeys) forwardedFor(header http.Header) (client netip.Addr, ok bool) {
	lines := header.Values("X-Forwarded-For")
	seen := 0
	for i := len(lines) - 1; i >= 0; i-- {
		for line, more := lines[i], true; more; {
			entry := line
			if cut := strings.LastIndexByte(line, ','); cut >= 0 {
				entry, line = line[cut+1:], line[:cut]
			} else {
				more = false
			}
			if seen++; seen > maxForwarded {
				return netip.Addr{}, false
			}
			addr, err := parseForwarded(entry)
			if err != nil {
				return netip.Addr{}, false
			}
			client, ok = addr, true
			if !k.isTrusted(addr) {
				return client, true
			}
		}
	}
	return client, ok
}

// parseForwarded reads one entry: an address, with or without a port, an IPv6
// one with or without brackets.
func parseForwarded(entry string) (netip.Addr, error) {
	entry = strings.Trim(entry, " \t")
	if addr, err := netip.ParseAddr(entry); err == nil {
		return addr.WithZone("").Unmap(), nil
	}
	if inner, found := strings.CutPrefix(entry, "["); found {
		if inner, found := strings.CutSuffix(inner, "]"); found {
			addr, err := netip.ParseAddr(inner)
			return addr.WithZone("").Unmap(), err
		}
	}
	ap, err := netip.ParseAddrPort(entry)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("no address: %s", strconv.Quote(entry[:min(len(entry), 64)]))
	}
	return ap.Addr().WithZone("").Unmap(), nil
}

// foldedKey returns the key of a public IPv6 address: its /64, or its /48 while
// that shows too many of them.
func (k *clientKeys) foldedKey(addr netip.Addr) clientKey {
	b := addr.As16()
	network := binary.BigEndian.Uint64(b[:8])
	if network == nat64Network {
		return clientOf(addr) // the whole of IPv4 is behind this one /64
	}
	prefix := network &^ 0xffff
	now := k.clock.Now()

	k.mu.Lock()
	defer k.mu.Unlock()

	f := k.folds[prefix]
	if f == nil {
		f = new(foldedPrefix)
		k.folds[prefix] = f
		// A ring bounds what an owner of a /32 can make the node remember: it
		// loses the prefix remembered for longest, which merely unfolds.
		if len(k.order) < foldPrefixes {
			k.order = append(k.order, prefix)
		} else {
			delete(k.folds, k.order[k.next])
			k.order[k.next] = prefix
			k.next = (k.next + 1) % foldPrefixes
		}
	}
	if f.see(network, now) >= foldNetworks {
		return clientKey{hi: prefix, kind: uint64(keyNet48)}
	}
	return clientKey{hi: network, kind: uint64(keyNet64)}
}

// see notes that network was seen now and returns how many were lately.
func (f *foldedPrefix) see(network uint64, now mclock.AbsTime) int {
	slot, live := -1, 0
	for i, seen := range f.seen {
		switch {
		case seen != 0 && f.network[i] == network:
			slot = i
		case seen != 0 && now.Sub(seen) < foldMemory:
			live++
		case slot < 0:
			slot = i
		}
	}
	if slot < 0 { // all taken by others: the oldest makes room
		slot = 0
		for i, seen := range f.seen {
			if seen < f.seen[slot] {
				slot = i
			}
		}
	}
	f.network[slot] = network
	f.seen[slot] = max(now, 1) // 0 is a free slot, also at the start of time
	return min(live+1, foldNetworks)
}
