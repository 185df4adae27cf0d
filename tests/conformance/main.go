// SPDX-License-Identifier: LGPL-3.0-or-later

// Command conformance runs the conformance cases of ethereum/execution-apis (its
// tests directory: genesis.json, chain.rlp, headfcu.json and a .io file a case)
// against two binaries, over HTTP and over WebSocket, and compares every reply of
// the one with that of the other, byte by byte.
//
//	go run ./tests/conformance --cases DIR --stock build/bin/geth-stock --ours build/bin/geth
//
// It is about sameness, not about the specification: what both answer alike is
// alike, whatever the case expects; how many match the case's own expectation is
// counted beside. Exit status 0 if all are alike.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"rpcguard/tests/slowclient/rig"
)

// exchange is one request of a case and the reply that the case expects.
type exchange struct {
	name    string
	request []byte
	want    []byte
}

func main() {
	dir := flag.String("cases", "", "the tests directory of execution-apis")
	stock := flag.String("stock", "", "stock geth")
	ours := flag.String("ours", "", "the binary compared with it")
	flags := flag.String("flags", "", "further flags for the binary compared, name=value, joined by commas")
	verbose := flag.Bool("v", false, "print every difference whole")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	different, err := run(ctx, *dir, *stock, *ours, *flags, *verbose)
	rig.StopAll()
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(2)
	}
	if different > 0 {
		os.Exit(1)
	}
}

func run(ctx context.Context, dir, stock, ours, flags string, verbose bool) (different int, err error) {
	if dir == "" || stock == "" || ours == "" {
		return 0, errors.New("--cases, --stock and --ours are needed")
	}
	cases, err := load(dir)
	if err != nil {
		return 0, err
	}
	a, err := start(ctx, dir, stock, "")
	if err != nil {
		return 0, err
	}
	defer a.Stop()
	b, err := start(ctx, dir, ours, flags)
	if err != nil {
		return 0, err
	}
	defer b.Stop()
	for transport, ask := range map[string]func(context.Context, *rig.Node) (func([]byte) ([]byte, error), error){"http": overHTTP, "ws": overWS} {
		askA, err := ask(ctx, a)
		if err != nil {
			return 0, err
		}
		askB, err := ask(ctx, b)
		if err != nil {
			return 0, err
		}
		alike, expected := 0, 0
		for _, c := range cases {
			ra, err := askA(c.request)
			if err != nil {
				return 0, fmt.Errorf("stock, %s: %w", c.name, err)
			}
			rb, err := askB(c.request)
			if err != nil {
				return 0, fmt.Errorf("ours, %s: %w", c.name, err)
			}
			if bytes.Equal(bytes.TrimSpace(ra), c.want) {
				expected++
			}
			if bytes.Equal(ra, rb) {
				alike++
				continue
			}
			different++
			limit := 200
			if verbose {
				limit = 1 << 20
			}
			fmt.Printf("%s %s\n  stock %.*s\n  ours  %.*s\n", transport, c.name, limit, ra, limit, rb)
		}
		fmt.Printf("%s: %d of %d replies byte for byte as stock's; stock's are as the case expects in %d\n", transport, alike, len(cases), expected)
	}
	return different, nil
}

// load reads every case, in the order of their names.
func load(dir string) (out []exchange, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".io") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		out = append(out, parse(name, text)...)
		return nil
	})
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("no cases in %s", dir)
	}
	return out, err
}

func parse(name string, text []byte) (out []exchange) {
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if req, ok := bytes.CutPrefix(line, []byte(">> ")); ok {
			out = append(out, exchange{name: name, request: req})
		} else if want, ok := bytes.CutPrefix(line, []byte("<< ")); ok && len(out) > 0 && out[len(out)-1].want == nil {
			out[len(out)-1].want = want
		}
	}
	return out
}

// start has a node up with the cases' chain, at its head.
func start(ctx context.Context, dir, path, flags string) (*rig.Node, error) {
	bin, err := rig.ProbeBinary(path)
	if err != nil {
		return nil, err
	}
	cfg := rig.NodeConfig{Engine: true, Genesis: filepath.Join(dir, "genesis.json"), Chain: filepath.Join(dir, "chain.rlp")}
	if flags != "" {
		cfg.Flags = strings.Split(flags, ",")
	}
	n, err := rig.StartNode(bin, cfg)
	if err != nil {
		return nil, err
	}
	head, err := os.ReadFile(filepath.Join(dir, "headfcu.json"))
	if err != nil {
		return nil, err
	}
	status, _, body, err := rig.NewHTTP(n.Auth, rig.Dialer{}).Post(ctx, head, "Authorization", "Bearer "+n.Token())
	if err != nil {
		return nil, err
	}
	if !bytes.Contains(body, []byte("VALID")) {
		return nil, fmt.Errorf("%s: setting the head: %d %s", path, status, body)
	}
	return n, nil
}

func overHTTP(ctx context.Context, n *rig.Node) (func([]byte) ([]byte, error), error) {
	c := rig.NewHTTP(n.HTTP, rig.Dialer{})
	return func(req []byte) ([]byte, error) {
		_, _, body, err := c.Post(ctx, req)
		return body, err
	}, nil
}

func overWS(ctx context.Context, n *rig.Node) (func([]byte) ([]byte, error), error) {
	ws, err := rig.DialWS(ctx, n.WS, rig.Dialer{})
	if err != nil {
		return nil, err
	}
	return func(req []byte) ([]byte, error) {
		if err := ws.Send(req); err != nil {
			return nil, err
		}
		ws.SetReadDeadline(time.Now().Add(30 * time.Second))
		_, msg, err := ws.ReadMessage()
		return msg, err
	}, nil
}
