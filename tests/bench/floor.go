// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"time"

	"rpcguard/tests/slowclient/rig"
)

// floor measures a handler that does nothing behind the HTTP server of the standard
// library: no node can answer for less. The server is this program, started again.
func floor(ctx context.Context, opt options) (Row, error) {
	self, err := os.Executable()
	if err != nil {
		return Row{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), "SLOWCLIENT_ECHO=1") // see rig.ServeEchoIfAsked
	stdin, err := cmd.StdinPipe()                       // it ends when this is closed
	if err != nil {
		return Row{}, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return Row{}, err
	}
	if err := cmd.Start(); err != nil {
		return Row{}, err
	}
	defer cmd.Wait()
	defer stdin.Close()
	addr, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return Row{}, err
	}
	l := &loop{request: httpRequest(rig.Call(1, "eth_blockNumber"), false)}
	defer l.close()
	for range 32 {
		c, err := dialHTTP(strings.TrimSpace(addr), "")
		if err != nil {
			return Row{}, err
		}
		l.conns = append(l.conns, c)
	}
	var costs, rates []float64
	for range opt.rounds {
		before, _ := rig.Look(cmd.Process.Pid)
		begun := time.Now()
		n, no, err := l.run(opt.duration)
		if err == nil && n+no == 0 {
			err = errors.New("nothing was answered")
		}
		if err != nil {
			return Row{}, err
		}
		after, _ := rig.Look(cmd.Process.Pid)
		costs = append(costs, (after.CPU-before.CPU).Seconds()*1e6/float64(n+no))
		rates = append(rates, float64(n+no)/time.Since(begun).Seconds())
	}
	cost, rate := medianOf(costs), medianOf(rates)
	return Row{Group: "requests", Workload: "floor/http/32", Rounds: opt.rounds, Note: "a handler that does nothing", Measures: []Measure{
		{Name: "CPU ms/1000 calls", Stock: cost, Ours: cost, Ratio: estimate(nil)},
		{Name: "calls/s", MoreIsGood: true, Stock: rate, Ours: rate, Ratio: estimate(nil)},
	}}, nil
}
