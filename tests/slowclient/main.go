// SPDX-License-Identifier: LGPL-3.0-or-later

// Command slowclient judges whether a geth node's JSON-RPC server survives the
// abuses that its clients, slow or malicious, can think of.
//
//	go run ./tests/slowclient --binary build/bin/geth           # start nodes from it
//	go run ./tests/slowclient --http localhost:8545 --ws ...    # a running node
//	go run ./tests/slowclient --list                            # a line a case
//	go run ./tests/slowclient --binary geth --only 1,bodies     # by number, name, family
//	go run ./tests/slowclient --binary geth --quick --repeat 20 # how many verdicts change
//	go run ./tests/slowclient ... --records FILE --resume       # go on where a run was cut off
//
// Ours is also compared with the last stock binary that ran before it: where the
// polite client's latency broke that one, ours must be within a twentieth of it.
//
// It starts nodes on free ports of 127.0.0.1 in directories of their own, ends
// them by process id, and ends any that grows beyond --memory. Against a running
// node it uses only the cases that need no chain of their own.
//
// Exit status: 0 if every case held or did not apply, 1 if one was broken, 2 if
// the suite could not run.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"rpcguard/tests/slowclient/attack"
	"rpcguard/tests/slowclient/rig"
)

func main() {
	rig.ServeEchoIfAsked()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

type stringList []string

func (l *stringList) String() string     { return strings.Join(*l, " ") }
func (l *stringList) Set(v string) error { *l = append(*l, v); return nil }

func run(args []string, stdout, stderr io.Writer) int {
	fs := flag.NewFlagSet("slowclient", flag.ContinueOnError)
	fs.SetOutput(stderr)
	var (
		binaries, flags stringList
		httpAddr        = fs.String("http", "", "judge a running node: its HTTP address, host:port or URL")
		wsAddr          = fs.String("ws", "", "its WebSocket address")
		only            = fs.String("only", "", "cases by name, part of a name, number or family, joined by commas")
		list            = fs.Bool("list", false, "list the cases, a line each (q: in the quick set), and end")
		quick           = fs.Bool("quick", false, "the quick set, under 3 minutes")
		asJSON          = fs.Bool("json", false, "one JSON record a case on standard output")
		markdown        = fs.Bool("markdown", false, "a Markdown table on standard output")
		records         = fs.String("records", "", "also write the JSON records to this file, as they come")
		resume          = fs.Bool("resume", false, "take what the file of records holds as done")
		stock           = fs.String("stock", "", "stock geth of the release under ours, for what is compared with it")
		ipv6            = fs.Bool("ipv6", false, "serve and attack on ::1")
		memory          = fs.Int64("memory", 3072, "end a node that holds more than this many MiB")
		retries         = fs.Int("retries", 1, "judge a case again that only a polite client's latency broke, at most so often")
		repeat          = fs.Int("repeat", 1, "run everything so often")
		period          = fs.Int("period", 1, "seconds a block")
	)
	fs.Var(&binaries, "binary", "start nodes from this binary; may be given more than once: a table with a column each")
	fs.Var(&flags, "flag", "a further flag for the node, name=value without dashes; may be given more than once")
	if err := fs.Parse(args); err != nil {
		if err == flag.ErrHelp {
			return 0
		}
		return 2
	}
	if fs.NArg() > 0 {
		fmt.Fprintf(stderr, "slowclient: unexpected argument %q\n", fs.Arg(0))
		return 2
	}
	cases, err := attack.Select(*only, *quick)
	if err != nil {
		fmt.Fprintln(stderr, "slowclient:", err)
		return 2
	}
	if *list {
		for _, c := range cases {
			fmt.Fprintln(stdout, c)
		}
		return 0
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer rig.StopAll()

	human := stderr
	if !*asJSON && !*markdown {
		human = stdout
	}
	opt := attack.Options{
		Quick: *quick, Retries: *retries, MemoryLimit: *memory << 20, Period: *period, Flags: flags,
		Stock: *stock, IPv6: *ipv6,
		Progress: func(format string, args ...any) { fmt.Fprintf(human, "# "+format+"\n", args...) },
	}
	var jsonOut []io.Writer
	if *asJSON {
		jsonOut = append(jsonOut, stdout)
	}
	var done []*attack.Record
	if *records != "" {
		how := os.O_TRUNC
		if *resume {
			var err error
			if done, err = readRecords(*records); err != nil {
				fmt.Fprintln(stderr, "slowclient:", err)
				return 2
			}
			how = os.O_APPEND
		}
		f, err := os.OpenFile(*records, os.O_CREATE|os.O_WRONLY|how, 0o644)
		if err != nil {
			fmt.Fprintln(stderr, "slowclient:", err)
			return 2
		}
		defer f.Close()
		jsonOut = append(jsonOut, f)
	}
	var suites []*attack.Suite
	for _, path := range binaries {
		b, err := rig.ProbeBinary(path)
		if err != nil {
			fmt.Fprintln(stderr, "slowclient:", err)
			return 2
		}
		if b.Guarded() {
			b.Version = "ours"
		}
		suites = append(suites, &attack.Suite{Binary: b, Opt: opt})
	}
	for _, s := range suites { // a stock binary in another column will do
		for _, other := range suites {
			if s.Opt.Stock == "" && !other.Binary.Guarded() && other.Binary.Release == s.Binary.Release {
				s.Opt.Stock = other.Binary.Path
			}
		}
	}
	if *httpAddr != "" {
		suites = append(suites, &attack.Suite{Endpoint: &rig.Node{HTTP: hostPort(*httpAddr), WS: hostPort(*wsAddr)}, Opt: opt})
	}
	if len(suites) == 0 {
		fmt.Fprintln(stderr, "slowclient: say what to judge: --binary PATH, or --http ADDR and --ws ADDR")
		return 2
	}

	rep := newReport(suites, cases)
	had := make(map[string]*attack.Record)
	for _, rec := range done {
		had[rec.Key()] = rec
	}
	status := 0
	keep := func(s *attack.Suite, rec *attack.Record) {
		rep.add(s, rec)
		if rec.Verdict == attack.Broken && status == 0 {
			status = 1
		}
	}
	for round := 1; round <= *repeat; round++ {
		for _, s := range suites {
			begun := time.Now()
			fmt.Fprintf(human, "# %s, %d cases, %d processors%s\n", s.Version(), len(cases), runtime.NumCPU(), roundOf(round, *repeat))
			for _, c := range attack.Order(cases) {
				if rec := had[(&attack.Record{Binary: s.Version(), Case: c.Name, Round: round}).Key()]; rec != nil {
					keep(s, rec)
					continue
				}
				rec, err := s.RunCase(ctx, c)
				if ctx.Err() != nil {
					fmt.Fprintln(stderr, "slowclient: interrupted")
					s.Close()
					return 2
				}
				if err != nil {
					// The others may still be judged: a release that does not start, or ends
					// by itself, is no reason to stop a run over six of them.
					fmt.Fprintln(stderr, "slowclient:", err)
					status = 2
				}
				rec.Round = round
				rep.compare(s, rec)
				keep(s, rec)
				printRecord(human, rec)
				for _, w := range jsonOut {
					if err := json.NewEncoder(w).Encode(rec); err != nil {
						fmt.Fprintln(stderr, "slowclient:", err)
						return 2
					}
				}
			}
			s.Close()
			fmt.Fprintf(human, "# %s: %s in %.0f s\n", s.Version(), rep.totals(s), time.Since(begun).Seconds())
		}
	}
	if *repeat > 1 {
		rep.flakes(human, *repeat)
	}
	if *markdown {
		fmt.Fprintf(stdout, "%s; %s\n\n", machine(), setName(*quick, *only))
		rep.markdown(stdout)
	} else if len(suites) > 1 {
		rep.human(human)
	}
	return status
}

// readRecords reads the records of a run that was cut off; the last line may be
// incomplete.
func readRecords(path string) (out []*attack.Record, err error) {
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil, nil
	}
	for line := range bytes.Lines(text) {
		rec := new(attack.Record)
		if bytes.HasSuffix(line, []byte("\n")) && json.Unmarshal(line, rec) == nil {
			out = append(out, rec)
		}
	}
	return out, err
}

func roundOf(round, of int) string {
	if of < 2 {
		return ""
	}
	return fmt.Sprintf(", round %d of %d", round, of)
}

// machine says what the figures were measured on.
func machine() string {
	return fmt.Sprintf("%d processors, %s/%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
}

func setName(quick bool, only string) string {
	set := "full set"
	if quick {
		set = "quick set"
	}
	if only != "" {
		set += ", only " + only
	}
	return set
}

// hostPort takes an address or a URL.
func hostPort(s string) string {
	if _, rest, ok := strings.Cut(s, "://"); ok {
		s = rest
	}
	host, _, _ := strings.Cut(s, "/")
	return host
}
