// SPDX-License-Identifier: LGPL-3.0-or-later

// Command patchset lays, edits, applies and exports the patch set.
//
//	patchset fork [--version vX] [--force]      lay the pinned release, patched, under build/fork
//	patchset refresh [--into NAME] [FILE[:LINE]...]   write hooks edited there back to patches/
//	patchset apply DIR [--check] [--commit] [--base NAME] [--reverse]
//	patchset series --out DIR                   the set as mails for git am
//	patchset lift --to vX                       move the pin; --continue, --abort
//	patchset drift DIR                          call sites that the hooks do not know
//	patchset bases [VERSION|DIR...]             apply and build on every base
//	patchset status                             what the set consists of
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

// command is one word of the command line.
type command struct {
	name, args, help string
	run              func(c *call) error
}

// call is a command being run: its flags, its positional arguments.
type call struct {
	repo  *repo
	flags *flag.FlagSet
	argv  []string
	args  []string
	out   io.Writer
}

// parse reads flags wherever they stand, and wants between min and max
// positional arguments (max < 0: any number).
func (c *call) parse(min, max int) error {
	rest := c.argv
	for {
		if err := c.flags.Parse(rest); err == flag.ErrHelp {
			fmt.Fprintf(c.out, "usage: patchset %s\n", usage(c.flags.Name()))
			c.flags.SetOutput(c.out)
			c.flags.PrintDefaults()
			return err
		} else if err != nil {
			return fmt.Errorf("%s: %w; usage: patchset %s", c.flags.Name(), err, usage(c.flags.Name()))
		}
		if c.flags.NArg() == 0 {
			break
		}
		c.args = append(c.args, c.flags.Arg(0))
		rest = c.flags.Args()[1:]
	}
	if len(c.args) < min || (max >= 0 && len(c.args) > max) {
		return fmt.Errorf("%s: %d arguments given; usage: patchset %s", c.flags.Name(), len(c.args), usage(c.flags.Name()))
	}
	return nil
}

var commands []command

func init() {
	commands = []command{
		{"fork", "[--version vX] [--base NAME] [--force]", "lay the pinned (or another) release with all patches under build/", runFork},
		{"refresh", "[--into NAME] [--version vX] [--all] [FILE[:LINE]...]", "write hooks edited in build/fork back to patches/", runRefresh},
		{"apply", "DIR [--check] [--commit] [--base NAME] [--reverse]", "put the patches onto a checkout, in full or not at all", runApply},
		{"series", "--out DIR [--base NAME]", "write the complete set as mails that git am takes", runSeries},
		{"lift", "--to vX [--history DIR] [--no-test] | --continue [--drop PATCH:FILE[:DECL]] | --abort | --from vA --to vB [--lay]", "move the pin to another release, or tell what became of each hunk", runLift},
		{"drift", "DIR", "list call sites in a tree that the hooks do not know", runDrift},
		{"bases", "[--quick] [--test] [--attacks CASE,...|quick] [--resume] [--markdown] [--targets] [VERSION|DIR...]", "apply to every release of patches/targets, build, and print a table", runBases},
		{"status", "[--compile [--version vX]]", "count patches, hunks, touched upstream lines and own files; compile after each patch", runStatus},
	}
}

func usage(name string) string {
	for _, c := range commands {
		if c.name == name {
			return name + " " + c.args
		}
	}
	return name
}

func printUsage(w io.Writer) {
	fmt.Fprintln(w, "usage: patchset [-C DIR] COMMAND ...")
	t := newTable()
	t.rows = nil
	for _, c := range commands {
		t.row("  "+c.name+" "+c.args, c.help)
	}
	t.print(w)
}

// run is main without the process: it returns the exit code.
func run(argv []string, out, errs io.Writer) int {
	if len(argv) >= 2 && argv[0] == "-C" {
		if err := os.Chdir(argv[1]); err != nil {
			fmt.Fprintln(errs, "patchset:", err)
			return 1
		}
		argv = argv[2:]
	}
	if len(argv) == 0 || argv[0] == "help" || argv[0] == "-h" || argv[0] == "--help" {
		printUsage(out)
		return 0
	}
	for _, c := range commands {
		if c.name != argv[0] {
			continue
		}
		r, err := findRepo()
		if err == nil {
			err = r.putBack(out)
		}
		if err == nil {
			fs := flag.NewFlagSet(c.name, flag.ContinueOnError)
			fs.SetOutput(io.Discard) // errors are told once, with the usage
			err = c.run(&call{repo: r, flags: fs, argv: argv[1:], out: out})
		}
		switch {
		case errors.Is(err, flag.ErrHelp):
			return 0
		case err != nil:
			fmt.Fprintln(errs, "patchset:", err)
			return 1
		}
		return 0
	}
	fmt.Fprintf(errs, "patchset: no command %q\n", argv[0])
	printUsage(errs)
	return 2
}

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func runFork(c *call) error {
	version := c.flags.String("version", "", "release to lay (default: the pinned one)")
	base := c.flags.String("base", "", "base to use (default: the first that fits)")
	force := c.flags.Bool("force", false, "throw away edits in the laid tree")
	if err := c.parse(0, 0); err != nil {
		return err
	}
	release, err := c.repo.hold(c.out)
	if err != nil {
		return err
	}
	defer release()
	l, err := c.repo.openLaid(*version)
	if err != nil {
		return err
	}
	return l.lay(*base, *force, c.out)
}

func runRefresh(c *call) error {
	into := c.flags.String("into", "", "patch that takes the edits which belong to none")
	version := c.flags.String("version", "", "release whose tree was edited (default: the pinned one)")
	base := c.flags.String("base", "", "base to use (default: the first that fits)")
	all := c.flags.Bool("all", false, "write every hunk anew")
	if err := c.parse(0, -1); err != nil {
		return err
	}
	only, err := parseSelection(c.args)
	if err != nil {
		return err
	}
	release, err := c.repo.hold(c.out)
	if err != nil {
		return err
	}
	defer release()
	l, err := c.repo.openLaid(*version)
	if err != nil {
		return err
	}
	return l.refresh(*base, *into, only, *all, c.out)
}

func runApply(c *call) error {
	var o applyOptions
	c.flags.BoolVar(&o.check, "check", false, "only tell whether it would apply")
	c.flags.BoolVar(&o.commit, "commit", false, "make one commit for each patch")
	c.flags.BoolVar(&o.reverse, "reverse", false, "take the patches out")
	c.flags.StringVar(&o.base, "base", "", "base to use (default: the first that fits)")
	if err := c.parse(1, 1); err != nil {
		return err
	}
	return c.repo.apply(c.args[0], o, c.out)
}

func runSeries(c *call) error {
	dir := c.flags.String("out", "", "directory to write to")
	base := c.flags.String("base", "", "base to use (default: the first that fits)")
	if err := c.parse(0, 0); err != nil {
		return err
	}
	if *dir == "" {
		return errors.New("series: name the directory with --out DIR")
	}
	return c.repo.writeSeries(*dir, *base, c.out)
}

func runStatus(c *call) error {
	compile := c.flags.Bool("compile", false, "compile what each patch of the series touches, as if the rest were not there")
	version := c.flags.String("version", "", "release to compile on (default: the pinned one)")
	if err := c.parse(0, 0); err != nil {
		return err
	}
	if *compile {
		return c.repo.compileSteps(*version, c.out)
	}
	return c.repo.status(c.out)
}

func runLift(c *call) error {
	to := c.flags.String("to", "", "release to lift to")
	from := c.flags.String("from", "", "only tell what would become of the hunks of this release")
	base := c.flags.String("base", "", "base to use (default: the first that fits)")
	history := c.flags.String("history", "", "git checkout of upstream, for the commits' subjects")
	lay := c.flags.Bool("lay", false, "with --from: lay the release under build/, build and test it there, and add it to patches/targets")
	noTest := c.flags.Bool("no-test", false, "leave build and tests out")
	resume := c.flags.Bool("continue", false, "go on after the lost hunks were made by hand")
	abort := c.flags.Bool("abort", false, "put everything back")
	var drop []string
	c.flags.Func("drop", "with --continue: go on without what was lost in PATCH:FILE[:DECL]; may be repeated", func(name string) error {
		drop = append(drop, name)
		return nil
	})
	if err := c.parse(0, 0); err != nil {
		return err
	}
	release, err := c.repo.hold(c.out)
	if err != nil {
		return err
	}
	defer release()
	switch {
	case len(drop) > 0 && !*resume:
		return errors.New("lift: --drop goes with --continue")
	case *abort:
		return c.repo.abortLift(c.out)
	case *resume:
		return c.repo.continueLift(drop, !*noTest, c.out)
	case *to == "":
		return errors.New("lift: name the release with --to vX")
	case *lay && *from == "":
		return errors.New("lift: --lay goes with --from; without, the pin moves and build/fork is laid")
	}
	return c.repo.lift(*from, *to, *base, *history, liftOptions{lay: *lay, test: !*noTest}, c.out)
}

func runDrift(c *call) error {
	if err := c.parse(1, 1); err != nil {
		return err
	}
	return c.repo.drift(c.args[0], c.out)
}

func runBases(c *call) error {
	var o basesOptions
	c.flags.BoolVar(&o.quick, "quick", false, "only apply, vet package rpc and compile what else has variants, tests included")
	c.flags.BoolVar(&o.test, "test", false, "run the tests of the packages, ours and upstream's, too")
	c.flags.StringVar(&o.attacks, "attacks", "", "have slowclient judge the node by these cases (its --only), or by its quick set (quick)")
	c.flags.BoolVar(&o.resume, "resume", false, "take what an earlier run found good (build/bases.json) as done")
	c.flags.BoolVar(&o.markdown, "markdown", false, "print the table as the documents have it; without --quick, --test and --attacks only of what earlier runs found")
	all := c.flags.Bool("targets", false, "take the releases of patches/targets as well as those named")
	if err := c.parse(0, -1); err != nil {
		return err
	}
	if *all && len(c.args) > 0 {
		list, err := c.repo.targets()
		if err != nil {
			return err
		}
		c.args = append(list, c.args...)
	}
	return c.repo.basesTable(c.args, o, c.out)
}
