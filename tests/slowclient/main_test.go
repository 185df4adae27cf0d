// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"rpcguard/tests/slowclient/attack"
	"rpcguard/tests/slowclient/rig"
)

func TestMain(m *testing.M) {
	rig.ServeEchoIfAsked()
	code := m.Run()
	rig.StopAll()
	os.Exit(code)
}

// TestBinary judges the binary that RPCGUARD_GETH names, a subtest a case: the
// quick set, or with SLOWCLIENT_ONLY the cases it selects.
func TestBinary(t *testing.T) {
	path := os.Getenv("RPCGUARD_GETH")
	if path == "" {
		t.Skip("RPCGUARD_GETH names no binary")
	}
	b, err := rig.ProbeBinary(path)
	require.NoError(t, err)
	only := os.Getenv("SLOWCLIENT_ONLY")
	cases, err := attack.Select(only, true)
	require.NoError(t, err)
	s := &attack.Suite{Binary: b, Opt: attack.Options{Quick: true, Retries: 1, Progress: t.Logf}}
	defer s.Close()
	for _, c := range attack.Order(cases) {
		t.Run(c.Name, func(t *testing.T) {
			rec, err := s.RunCase(context.Background(), c)
			require.NoError(t, err)
			switch rec.Verdict {
			case attack.NA:
				t.Skip(rec.Reason)
			case attack.Broken:
				t.Errorf("%s: %s", rec.Reason, rec.Summary())
			default:
				t.Log(rec.Summary())
			}
		})
	}
}

func TestCommandLine(t *testing.T) {
	var out, errs bytes.Buffer
	require.Equal(t, 0, run([]string{"--list"}, &out, &errs))
	require.Equal(t, len(attack.Cases()), strings.Count(out.String(), "\n"))
	for _, args := range [][]string{{}, {"--only", "no-such"}, {"--nonsense"}, {"stray"}, {"--binary", "/nonexistent/geth"}} {
		require.Equal(t, 2, run(args, &out, &errs), args)
	}
	require.Equal(t, "localhost:8545", hostPort("http://localhost:8545/path"))
	require.Equal(t, "localhost:8545", hostPort("localhost:8545"))
}

func TestReport(t *testing.T) {
	s := &attack.Suite{Endpoint: &rig.Node{HTTP: "stock"}}
	cases := []*attack.Case{{Name: "a", Number: 1, Why: "one"}, {Name: "b", Why: "two"}}
	r := newReport([]*attack.Suite{s}, cases)
	r.add(s, &attack.Record{Case: "a", Verdict: attack.Broken, Reason: "memory 3 GiB | x; and more"})
	r.add(s, &attack.Record{Case: "a", Verdict: attack.Held})
	var out bytes.Buffer
	r.markdown(&out)
	require.Contains(t, out.String(), "| 1 | a | one | **broken**: memory 3 GiB / x |", "broken once is broken")
	require.Contains(t, out.String(), "| 0 held, 1 broken, 0 n/a |")

	// One JSON record a case, with its verdict by that name.
	b, err := json.Marshal(&attack.Record{Case: "a", Verdict: attack.Held})
	require.NoError(t, err)
	require.Contains(t, string(b), `"verdict":"held"`)
}
