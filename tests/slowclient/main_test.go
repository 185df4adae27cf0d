// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
	s := &attack.Suite{Binary: b, Opt: attack.Options{Quick: true, Retries: 1, Stock: os.Getenv("RPCGUARD_STOCK"), Progress: t.Logf}}
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

// What a run that was cut off left is taken over, its incomplete last line is not.
func TestReadRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records")
	none, err := readRecords(path)
	require.NoError(t, err)
	require.Empty(t, none)
	require.NoError(t, os.WriteFile(path, []byte(`{"case":"a","binary":"x","verdict":"held"}`+"\n"+`{"case":"b","bin`), 0o644))
	got, err := readRecords(path)
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, (&attack.Record{Case: "a", Binary: "x", Round: 1}).Key(), got[0].Key())
}

func TestFlakes(t *testing.T) {
	s := &attack.Suite{Endpoint: &rig.Node{HTTP: "x"}}
	r := newReport([]*attack.Suite{s}, []*attack.Case{{Name: "a"}, {Name: "b"}})
	for i := range 3 {
		v := attack.Held
		if i == 1 {
			v = attack.Broken
		}
		r.add(s, &attack.Record{Case: "a", Verdict: v})
		r.add(s, &attack.Record{Case: "b", Verdict: attack.Broken})
	}
	var out bytes.Buffer
	r.flakes(&out, 3)
	require.Equal(t, "flake: x, a: held 2, broken 1, n/a 0\n# 3 rounds: 1 of 6 verdicts differ from the case's usual one\n", out.String())
}

// Ours is held against stock of the same run where stock's latency broke.
func TestATwentiethOfStock(t *testing.T) {
	probe := func(help string) *rig.Binary {
		path := filepath.Join(t.TempDir(), "geth")
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\nprintf '"+help+"'\n"), 0o755))
		b, err := rig.ProbeBinary(path)
		require.NoError(t, err)
		return b
	}
	stock := &attack.Suite{Binary: probe("  --http\\n")}
	ours := &attack.Suite{Binary: probe("  --http\\n  --rpc.guard\\n")}
	for late, c := range map[time.Duration]struct {
		broke bool
		want  attack.Verdict
	}{
		2 * time.Second:        {true, attack.Held},
		500 * time.Millisecond: {true, attack.Broken},
		499 * time.Millisecond: {false, attack.Held},
	} {
		r := newReport([]*attack.Suite{stock, ours}, nil)
		before := &attack.Record{Case: "a", Polite: &rig.PoliteReport{P99: late}, Verdict: attack.Broken}
		before.Figures = []attack.Figure{{Name: "polite p99", OK: !c.broke}}
		r.add(stock, before)
		rec := &attack.Record{Case: "a", Verdict: attack.Held, Polite: &rig.PoliteReport{P99: 50 * time.Millisecond, Noise: time.Millisecond}}
		r.compare(ours, rec)
		require.Equal(t, c.want, rec.Verdict, late)
	}
}
