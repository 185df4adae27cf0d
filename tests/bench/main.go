// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"

	"rpcguard/tests/slowclient/rig"
)

type options struct {
	stock, ours string
	rounds      int
	duration    time.Duration
	run         *regexp.Regexp
	flags       []string // further flags of both nodes
	profile     string
}

// Report is what --json prints.
type Report struct {
	Stock string   `json:"stock"`
	Ours  string   `json:"ours"`
	Flags []string `json:"flags,omitempty"`
	CPUs  int      `json:"cpus"`
	Rows  []Row    `json:"rows"`
}

func main() {
	rig.ServeEchoIfAsked()
	var (
		opt      options
		pattern  = flag.String("run", ".", "regular expression: workloads to run")
		list     = flag.Bool("list", false, "list the workloads")
		asJSON   = flag.Bool("json", false, "print JSON")
		markdown = flag.Bool("markdown", false, "print a Markdown table")
		flags    = flag.String("flags", "", "further flags for both nodes, name=value, separated by spaces; left out where unknown")
	)
	flag.StringVar(&opt.stock, "stock", "build/bin/geth-stock", "stock binary")
	flag.StringVar(&opt.ours, "ours", "build/bin/geth", "hardened binary")
	flag.IntVar(&opt.rounds, "rounds", 9, "samples of each side; 6 is the least for an interval")
	flag.DurationVar(&opt.duration, "duration", time.Second, "length of a sample of a request workload")
	flag.StringVar(&opt.profile, "profile", "", "directory: save processor profiles of both sides for each workload of requests or fan-out")
	flag.Parse()
	if flag.NArg() > 0 { // print what was measured before
		if err := reprint(flag.Args(), *markdown); err != nil {
			fatal(err)
		}
		return
	}
	if *list {
		for _, name := range workloadNames() {
			fmt.Println(name)
		}
		return
	}
	var err error
	if opt.run, err = regexp.Compile(*pattern); err != nil {
		fatal(err)
	}
	if opt.rounds < 1 || opt.duration < 100*time.Millisecond {
		fatal(fmt.Errorf("rounds must be at least 1 and duration at least 100ms"))
	}
	opt.flags = strings.Fields(*flags)

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	report, err := bench(ctx, opt)
	rig.StopAll()
	switch {
	case *asJSON:
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		enc.Encode(report)
	case *markdown:
		writeMarkdown(os.Stdout, report.Rows)
	default:
		fmt.Println()
		writeTable(os.Stdout, report.Rows)
	}
	if err != nil {
		fatal(err)
	}
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "bench:", err)
	os.Exit(1)
}

// reprint prints reports written with --json as one table.
func reprint(files []string, markdown bool) error {
	var rows []Row
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		var r Report
		if err := json.Unmarshal(b, &r); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		rows = append(rows, r.Rows...)
	}
	if markdown {
		writeMarkdown(os.Stdout, rows)
	} else {
		writeTable(os.Stdout, rows)
	}
	return nil
}

func workloadNames() (names []string) {
	for _, w := range requests() {
		names = append(names, w.name)
	}
	for _, w := range refusals() {
		names = append(names, w.name)
	}
	for _, w := range helds() {
		names = append(names, w.name)
	}
	for _, w := range fanouts() {
		names = append(names, w.name)
	}
	for _, w := range idles() {
		names = append(names, w.name)
	}
	for _, w := range overloads() {
		names = append(names, w.name)
	}
	return names
}

// bench runs what opt.run matches. Each group has nodes of its own, since memory only
// ever grows.
func bench(ctx context.Context, opt options) (report Report, err error) {
	sb, err := rig.ProbeBinary(opt.stock)
	if err != nil {
		return report, err
	}
	ob, err := rig.ProbeBinary(opt.ours)
	if err != nil {
		return report, err
	}
	report = Report{Stock: sb.Version, Ours: ob.Version, Flags: opt.flags, CPUs: runtime.NumCPU()}
	emit := func(r Row) {
		report.Rows = append(report.Rows, r)
		for _, line := range r.cells() {
			fmt.Fprintf(os.Stderr, "%-24s %-20s %10s %10s  %s %s\n", line[0], line[1], line[2], line[3], line[4], line[5])
		}
	}
	group := func(run func(stock, ours *side) error) error {
		stock, ours := &side{name: "stock", binary: sb}, &side{name: "ours", binary: ob}
		defer stock.stop()
		defer ours.stop()
		return run(stock, ours)
	}
	if list := matching(opt, requests(), func(w request) string { return w.name }); len(list) > 0 {
		err = group(func(stock, ours *side) error { return runRequests(ctx, opt, stock, ours, list, emit) })
	}
	if list := matching(opt, refusals(), func(w refused) string { return w.name }); err == nil && len(list) > 0 {
		err = group(func(stock, ours *side) error { return runRefusals(ctx, opt, stock, ours, list, emit) })
	}
	if list := matching(opt, helds(), func(w held) string { return w.name }); err == nil && len(list) > 0 {
		err = group(func(stock, ours *side) error { return runHelds(ctx, opt, stock, ours, list, emit) })
	}
	if list := matching(opt, fanouts(), func(w fanout) string { return w.name }); err == nil && len(list) > 0 {
		err = group(func(stock, ours *side) error { return runFanouts(ctx, opt, stock, ours, list, emit) })
	}
	if list := matching(opt, idles(), func(w idle) string { return w.name }); err == nil && len(list) > 0 {
		err = group(func(stock, ours *side) error { return runIdles(ctx, opt, stock, ours, list, emit) })
	}
	if list := matching(opt, overloads(), func(w overload) string { return w.name }); err == nil && len(list) > 0 {
		err = group(func(stock, ours *side) error { return runOverloads(ctx, opt, stock, ours, list, emit) })
	}
	return report, err
}

func matching[T any](opt options, all []T, name func(T) string) (list []T) {
	for _, w := range all {
		if opt.run.MatchString(name(w)) {
			list = append(list, w)
		}
	}
	return list
}
