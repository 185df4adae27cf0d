// SPDX-License-Identifier: LGPL-3.0-or-later

package rig

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// startTestProcess starts something harmless as if it were a node: the echo server.
func startTestProcess(t *testing.T) *Node {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	n := &Node{done: make(chan struct{})}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), echoEnv+"=1")
	_, err = cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, n.run(cmd))
	t.Cleanup(func() { n.Kill(); <-n.Done() })
	return n
}

func TestStopAllEndsNodes(t *testing.T) {
	n := startTestProcess(t)
	require.True(t, n.Alive())
	StopAll()
	require.False(t, n.Alive())
}
