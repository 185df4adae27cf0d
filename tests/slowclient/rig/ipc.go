// SPDX-License-Identifier: LGPL-3.0-or-later

package rig

import (
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"time"
)

// IPC is a connection to the node's socket.
type IPC struct {
	net.Conn
	mu  sync.Mutex
	dec *json.Decoder
	id  int
}

// DialIPC connects to the node's socket.
func DialIPC(n *Node) (*IPC, error) {
	if n.IPC == "" {
		return nil, fmt.Errorf("no IPC socket")
	}
	c, err := net.DialTimeout("unix", n.IPC, 5*time.Second)
	if err != nil {
		return nil, err
	}
	return &IPC{Conn: c, dec: json.NewDecoder(c)}, nil
}

// Call calls a method and waits for its reply. One call at a time.
func (c *IPC) Call(limit time.Duration, method string, params ...any) (*Reply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.id++
	c.SetDeadline(time.Now().Add(limit))
	defer c.SetDeadline(time.Time{})
	if _, err := c.Write(Call(c.id, method, params...)); err != nil {
		return nil, err
	}
	for {
		r := new(Reply)
		if err := c.dec.Decode(r); err != nil {
			return nil, err
		}
		if string(r.ID) == fmt.Sprint(c.id) {
			return r, nil
		}
	}
}

// Next reads one message, whatever it is.
func (c *IPC) Next(limit time.Duration) (*Reply, error) {
	c.SetReadDeadline(time.Now().Add(limit))
	r := new(Reply)
	err := c.dec.Decode(r)
	return r, err
}
