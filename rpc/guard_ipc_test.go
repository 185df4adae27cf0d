// SPDX-License-Identifier: LGPL-3.0-or-later

package rpc

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The server of an IPC endpoint finds the guard of its node by itself: its calls are
// counted as those of a trusted client. Without a guard it is upstream's.
func TestGuardIPCEndpoint(t *testing.T) {
	g, err := NewGuard(DefaultGuardConfig, GuardEnv{Procs: 2, HTTPBodyLimit: defaultBodyLimit})
	require.NoError(t, err)
	for _, guard := range []*Guard{g, nil} {
		path := filepath.Join(t.TempDir(), "ipc")
		listener, srv, err := StartIPCEndpoint(path, append(guard.APIs(), API{Namespace: "test", Service: new(testService)}))
		require.NoError(t, err)
		client, err := Dial(path)
		require.NoError(t, err)
		require.NoError(t, client.Call(nil, "test_noArgsRets"))
		err = client.Call(nil, "admin_rpcStatus")
		if guard == nil {
			require.Error(t, err)
		} else {
			require.NoError(t, err)
		}
		client.Close()
		listener.Close()
		srv.Stop()
	}
	require.EqualValues(t, 2, g.admission.trusted.served.Load())
}
