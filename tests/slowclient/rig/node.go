// SPDX-License-Identifier: LGPL-3.0-or-later

package rig

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Node is a running node, or an endpoint that somebody else runs (then Pid is 0
// and only HTTP and WS are set).
type Node struct {
	Binary  *Binary
	HTTP    string // host:port
	WS      string // host:port
	Auth    string // engine API, host:port
	Debug   string // pprof, host:port
	Page    string // metrics, host:port; bor serves them elsewhere
	IPC     string // socket's path
	LogFile string
	Secret  []byte   // of the engine API
	Args    []string // the command line, for the report
	Dropped []string // flags asked for that the binary does not know
	Pid     int

	dir  string
	ipv6 bool
	done chan struct{} // closed when the process has ended

	mu    sync.Mutex
	err   error
	proc  *os.Process
	ended bool
}

// NodeConfig says how a node is to be started.
type NodeConfig struct {
	Period  int               // seconds a block
	Engine  bool              // no --dev: a chain that stands still at its genesis, but an engine port
	Genesis string            // file to initialise the data directory from; needs Engine
	Chain   string            // file of blocks to import behind it
	DevKey  *ecdsa.PrivateKey // the developer's, of which --dev makes a new one otherwise
	Flags   []string          // further flags, "name=value", left out where unknown
	IPv6    bool              // serve on ::1
	Env     []string          // further environment
	Timeout time.Duration
}

const nodeAPIs = "eth,debug,net,web3,txpool"

// StartNode starts a node and waits until its HTTP server answers.
func StartNode(b *Binary, cfg NodeConfig) (*Node, error) {
	if cfg.Period == 0 {
		cfg.Period = 1
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 60 * time.Second
	}
	// Between choosing a free port and binding it somebody else may take it:
	// try again with others.
	var err error
	for range 3 {
		var n *Node
		if n, err = startOnce(b, cfg); err == nil {
			return n, nil
		}
		if !errors.Is(err, errPortTaken) {
			break
		}
	}
	return nil, err
}

var errPortTaken = errors.New("a port was taken meanwhile")

func startOnce(b *Binary, cfg NodeConfig) (*Node, error) {
	dir, err := os.MkdirTemp("", "slowclient-")
	if err != nil {
		return nil, err
	}
	host := "127.0.0.1"
	if cfg.IPv6 {
		host = "::1"
	}
	ports, err := freePorts(host, 6)
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	at := func(i int) string { return net.JoinHostPort(host, strconv.Itoa(ports[i])) }
	n := &Node{
		Binary:  b,
		HTTP:    at(0),
		WS:      at(1),
		Auth:    at(2),
		Debug:   at(3),
		Page:    at(3),
		IPC:     filepath.Join(dir, "geth.ipc"),
		LogFile: filepath.Join(dir, "log"),
		Secret:  make([]byte, 32),
		dir:     dir,
		ipv6:    cfg.IPv6,
		done:    make(chan struct{}),
	}
	if b.Has(pageFlag) {
		n.Page = at(4)
	}
	rand.Read(n.Secret)
	secret := filepath.Join(dir, "jwt")
	if err := os.WriteFile(secret, []byte(hex.EncodeToString(n.Secret)), 0o600); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	args, dropped := b.filter(nodeFlags(n, cfg, host, ports, secret))
	n.Dropped = dropped
	n.Args = append(append([]string{}, b.Command...), args...)

	if cfg.Genesis != "" {
		data := "--datadir=" + filepath.Join(dir, "data")
		steps := [][]string{{"init", data, cfg.Genesis}}
		if cfg.Chain != "" {
			steps = append(steps, []string{"import", data, cfg.Chain})
		}
		for _, step := range steps {
			if out, err := output(b.Path, step...); err != nil {
				os.RemoveAll(dir)
				return nil, fmt.Errorf("%s %s: %w\n%s", b.Path, step[0], err, out)
			}
		}
	}
	if cfg.DevKey != nil {
		if err := importKey(b, dir, cfg.DevKey); err != nil {
			os.RemoveAll(dir)
			return nil, err
		}
	}
	log, err := os.Create(n.LogFile)
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(b.Path, n.Args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), cfg.Env...)
	if err := n.run(cmd); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), cfg.Timeout)
	defer cancel()
	if err := n.waitUp(ctx); err != nil {
		tail := n.LogTail(2000)
		n.Stop()
		if strings.Contains(tail, "address already in use") {
			return nil, errPortTaken
		}
		return nil, fmt.Errorf("%s did not come up: %w\n%s", b.Path, err, tail)
	}
	return n, nil
}

// pageFlag is bor's: there the metrics page has an address of its own.
const pageFlag = "metrics.prometheus-addr"

// nodeFlags is the whole command line, of which a binary is given what it knows.
func nodeFlags(n *Node, cfg NodeConfig, host string, ports []int, secret string) []string {
	port := func(name string, i int) string { return fmt.Sprintf("%s.port=%d", name, ports[i]) }
	chain := []string{"dev", fmt.Sprintf("dev.period=%d", cfg.Period), "dev.gaslimit=300000000"}
	if cfg.Engine {
		chain = []string{"syncmode=full"}
	}
	flags := append(chain,
		"datadir="+filepath.Join(n.dir, "data"), "ipcpath="+n.IPC,
		"http", "http.addr="+host, port("http", 0), "http.api="+nodeAPIs, "http.vhosts=*",
		"ws", "ws.addr="+host, port("ws", 1), "ws.api="+nodeAPIs, "ws.origins=*",
		"authrpc.addr="+host, port("authrpc", 2), "authrpc.jwtsecret="+secret, "authrpc.vhosts=*",
		"graphql", "graphql.vhosts=*",
		"metrics", "pprof", "pprof.addr="+host, port("pprof", 3),
		"rpc.gascap=0", "rpc.evmtimeout=20s", "nodiscover", "maxpeers=0", "port=0", "nat=none",
		"txpool.accountslots=4096", "txpool.globalslots=20000",
		"rpc.client.local",
		// bor's: pages with fixed ports, a tenth of geth's batch, prices of a real chain.
		pageFlag+"="+n.Page, "grpc.addr="+net.JoinHostPort(host, strconv.Itoa(ports[5])),
		"rpc.batchlimit=1000", "rpc.returndatalimit=0",
	)
	if n.Binary.Server() {
		flags = append(flags, "bor.withoutheimdall", "disable-bor-wallet=false",
			"miner.gasprice=1", "txpool.pricelimit=1", "gpo.ignoreprice=1")
	}
	if cfg.IPv6 {
		flags = append(flags, "rpc.client.trusted-proxies=::1/128")
	}
	return append(flags, cfg.Flags...)
}

// run starts the process and watches for its end. The kernel ends the child when
// the thread that made it ends, so that one is kept for it (see procattr_linux.go).
func (n *Node) run(cmd *exec.Cmd) error {
	started := make(chan error, 1)
	go func() {
		unlock := tieToParent(cmd)
		defer unlock()
		err := cmd.Start()
		if err == nil {
			n.proc, n.Pid = cmd.Process, cmd.Process.Pid
			register(n)
		}
		started <- err
		if err != nil {
			return
		}
		err = cmd.Wait()
		unregister(n)
		n.mu.Lock()
		n.err, n.ended = err, true
		n.mu.Unlock()
		close(n.done)
	}()
	return <-started
}

func (n *Node) waitUp(ctx context.Context) error {
	c := NewHTTP(n.HTTP, Dialer{})
	defer c.Close()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		// The second block tells that the chain is moving.
		if r, err := c.Call(ctx, "eth_blockNumber"); err == nil && r.Err == nil {
			ws, err := DialWS(ctx, n.WS, Dialer{})
			if err == nil {
				ws.Abort()
				return nil
			}
		}
		select {
		case <-n.done:
			return fmt.Errorf("it ended: %v", n.Err())
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// Alive reports whether the process runs.
func (n *Node) Alive() bool {
	if n.Pid == 0 {
		return true
	}
	select {
	case <-n.done:
		return false
	default:
		return true
	}
}

// Err is how the process ended.
func (n *Node) Err() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}

// Kill ends the process at once; Stop does too and removes its directory. A node
// of --dev mode has nothing worth a slow shutdown.
func (n *Node) Kill() {
	n.mu.Lock()
	if n.proc != nil && !n.ended {
		n.proc.Kill()
	}
	n.mu.Unlock()
}

// Stop ends the process, waits for that, and removes what it left.
func (n *Node) Stop() {
	if n.Pid == 0 {
		return
	}
	n.Kill()
	<-n.done
	os.RemoveAll(n.dir)
}

// Interrupt asks the process to end as an operator would, and reports how long
// it took; it is ended by force after limit.
func (n *Node) Interrupt(limit time.Duration) (time.Duration, bool) {
	start := time.Now()
	n.mu.Lock()
	if n.proc != nil && !n.ended {
		n.proc.Signal(os.Interrupt)
	}
	n.mu.Unlock()
	select {
	case <-n.done:
		return time.Since(start), true
	case <-time.After(limit):
		n.Kill()
		<-n.done
		return time.Since(start), false
	}
}

// Done is closed when the process has ended.
func (n *Node) Done() <-chan struct{} { return n.done }

// LogTail returns the last bytes of the node's log.
func (n *Node) LogTail(max int64) string {
	f, err := os.Open(n.LogFile)
	if err != nil {
		return ""
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > max {
		f.Seek(-max, 2)
	}
	buf := make([]byte, max)
	k, _ := f.Read(buf)
	return string(buf[:k])
}

// LogSize is how much the node has logged.
func (n *Node) LogSize() int64 {
	st, err := os.Stat(n.LogFile)
	if err != nil {
		return 0
	}
	return st.Size()
}

func freePorts(host string, k int) ([]int, error) {
	var ports []int
	for range k {
		l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err != nil {
			return nil, err
		}
		// All are held until all are known, so that they differ.
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// running holds every node that is up, for the end by signal or panic.
var running = struct {
	sync.Mutex
	nodes map[*Node]bool
}{nodes: make(map[*Node]bool)}

func register(n *Node) {
	running.Lock()
	running.nodes[n] = true
	running.Unlock()
}

func unregister(n *Node) {
	running.Lock()
	delete(running.nodes, n)
	running.Unlock()
}

// StopAll ends every node that this process started. For a signal handler, or a
// deferred call in main.
func StopAll() {
	running.Lock()
	var nodes []*Node
	for n := range running.nodes {
		nodes = append(nodes, n)
	}
	running.Unlock()
	for _, n := range nodes {
		n.Stop()
	}
}
