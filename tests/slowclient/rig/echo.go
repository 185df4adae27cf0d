// SPDX-License-Identifier: LGPL-3.0-or-later

package rig

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// The echo server is the control of every latency: a process that has nothing to
// do but answer. What it is late by, the machine is late by.

const echoEnv = "SLOWCLIENT_ECHO"

// ServeEchoIfAsked turns this process into the echo server when its environment
// says so; main and TestMain call it first.
func ServeEchoIfAsked() {
	if os.Getenv(echoEnv) == "" {
		return
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(l.Addr())
	go func() {
		io.Copy(io.Discard, os.Stdin) // ends with the parent
		os.Exit(0)
	}()
	http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":"0x0"}`)
	}))
	os.Exit(1)
}

var echo struct {
	once sync.Once
	addr string
	err  error
}

// echoAddr starts the echo server once and tells where it listens.
func echoAddr() (string, error) {
	echo.once.Do(func() {
		self, err := os.Executable()
		if err != nil {
			echo.err = err
			return
		}
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), echoEnv+"=1", "GOMAXPROCS=1")
		if _, echo.err = cmd.StdinPipe(); echo.err != nil {
			return
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			echo.err = err
			return
		}
		started := make(chan error, 1)
		go func() {
			defer tieToParent(cmd)()
			err := cmd.Start()
			started <- err
			if err == nil {
				cmd.Wait()
			}
		}()
		if echo.err = <-started; echo.err != nil {
			return
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		echo.addr, echo.err = strings.TrimSpace(line), err
	})
	return echo.addr, echo.err
}
