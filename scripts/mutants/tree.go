// SPDX-License-Identifier: LGPL-3.0-or-later

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// envName is the switch.
const envName = "RPCGUARD_MUTANT"

// packages that hold something of ours, those that others need first.
var packages = []string{
	"./rpc", "./node", "./eth/filters", "./eth/tracers", "./eth/tracers/js", "./eth/tracers/logger", "./eth/tracers/native", "./graphql", "./internal/ethapi", "./cmd/utils", "./cmd/geth",
}

// edit replaces a text that occurs exactly once in a file of the tree.
type edit struct {
	file     string // from the tree's root
	old, new string
}

func (e edit) apply(src string) (string, error) {
	if n := strings.Count(src, e.old); n != 1 {
		return "", fmt.Errorf("%s holds %d times what is to be taken out: %q", e.file, n, e.old)
	}
	return strings.Replace(src, e.old, e.new, 1), nil
}

// mutant is one thing taken out.
type mutant struct {
	name   string
	edits  []edit // put it behind the switch; none: it has a tree of its own
	undo   []edit // take it out for good
	config string // statement after which a limit of the configuration never binds
	pkg    string // whose tests are about it
	cases  string // of the suite, where tests may not be enough, joined by commas
}

func (m *mutant) switched() bool { return len(m.edits) > 0 || m.config != "" }

func (m *mutant) kind() string {
	if m.switched() {
		return "switch"
	}
	return "revert"
}

// packages whose tests may catch the mutant, the likeliest first.
func (m *mutant) packages() []string {
	switch m.pkg {
	case "./rpc":
		return []string{"./rpc", "./node", "./eth/filters", "./eth/tracers"}
	case "./cmd/utils":
		return []string{"./cmd/utils", "./cmd/geth"}
	case "./eth/tracers":
		return []string{m.pkg, "./eth/tracers/native", "./node"}
	case "./eth/tracers/js":
		return []string{"./eth/tracers", m.pkg} // tests of a call stand there
	case "./eth/filters":
		return []string{m.pkg, "./node"}
	}
	return []string{m.pkg}
}

// tree is build/fork with everything behind switches, as an overlay.
type tree struct {
	fork, dir string
	overlay   string // the overlay's description
	abs       string // fork's absolute path

	compiled map[string]string // package: its test program
}

func newTree(fork, dir string, all []*mutant) (*tree, error) {
	abs, err := filepath.Abs(fork)
	if err != nil {
		return nil, err
	}
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	t := &tree{fork: fork, dir: dir, abs: abs, compiled: make(map[string]string)}
	files := make(map[string]string)
	var config strings.Builder
	for _, m := range all {
		if err := applyAll(fork, files, m.edits); err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
		if m.config != "" {
			fmt.Fprintf(&config, "\tcase %q:\n\t\t%s\n", m.name, m.config)
		}
	}
	if err := applyAll(fork, files, []edit{{"rpc/guard.go", anchor, anchor + "\tmutateConfig(&cfg)\n"}}); err != nil {
		return nil, err
	}
	for _, pkg := range packages {
		name, text := filepath.Base(pkg), switchSource
		if pkg == "./rpc" {
			text += fmt.Sprintf(configSource, config.String())
		}
		if pkg == "./cmd/geth" {
			name = "main"
		}
		files[filepath.Join(pkg, "rpcguard_mutant.go")] = fmt.Sprintf("package %s\n%s", name, text)
	}
	t.overlay, err = t.write("switches", files)
	return t, err
}

const switchSource = `
import (
	"os"
	"sync"
)

var (
	mutantName = os.Getenv("` + envName + `")
	mutantTell = os.Getenv("` + reachName + `") != ""
	mutantSeen sync.Map
)

// mutant reports whether the thing of that name is taken out.
func mutant(name string) bool {
	if mutantTell {
		if _, again := mutantSeen.LoadOrStore(name, true); !again {
			os.Stderr.WriteString("\nreached: " + name + "\n")
		}
	}
	return mutantName == name
}

// mutantOr returns out where the thing of that name is taken out, else in.
func mutantOr[T any](name string, out, in T) T {
	if mutant(name) {
		return out
	}
	return in
}

var _ = mutantOr[int]
`

const configSource = `
func mutateConfig(cfg *GuardConfig) {
	mutant("` + everyConfig + `")
	switch mutantName {
%s	}
}
`

// applyAll edits files, reading from fork those that were not edited yet.
func applyAll(fork string, files map[string]string, edits []edit) error {
	for _, e := range edits {
		src, ok := files[e.file]
		if !ok {
			b, err := os.ReadFile(filepath.Join(fork, e.file))
			if err != nil {
				return err
			}
			src = string(b)
		}
		var err error
		if files[e.file], err = e.apply(src); err != nil {
			return err
		}
	}
	return nil
}

// write lays files down as an overlay and returns its description's path.
func (t *tree) write(name string, files map[string]string) (string, error) {
	replace := make(map[string]string)
	for file, text := range files {
		to := filepath.Join(t.dir, name, file)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return "", err
		}
		if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
			return "", err
		}
		replace[filepath.Join(t.abs, file)] = to
	}
	b, err := json.MarshalIndent(map[string]any{"Replace": replace}, "", "\t")
	if err != nil {
		return "", err
	}
	path := filepath.Join(t.dir, name+".json")
	return path, os.WriteFile(path, b, 0o644)
}

// revert lays down the tree without the mutant's hunk.
func (t *tree) revert(m *mutant) (string, error) {
	files := make(map[string]string)
	if err := applyAll(t.fork, files, m.undo); err != nil {
		return "", err
	}
	return t.write("reverted", files)
}

// test runs tests of a package with a mutant switched, "" for none.
func (t *tree) test(pkg, mutant, pattern, timeout string, flags ...string) (string, error) {
	bin, ok := t.compiled[pkg]
	if !ok {
		bin = filepath.Join(t.dir, strings.ReplaceAll(strings.TrimPrefix(pkg, "./"), "/", "-")+".test")
		if out, err := output(t.fork, nil, "go", "test", "-c", "-vet=off", "-overlay", t.overlay, "-o", bin, pkg); err != nil {
			return out, fmt.Errorf("compiling %s: %w\n%s", pkg, err, out)
		}
		t.compiled[pkg] = bin
	}
	if _, err := os.Stat(bin); err != nil {
		return "", nil // a package without tests
	}
	args := append([]string{"-test.run", pattern, "-test.failfast", "-test.timeout", timeout}, flags...)
	return output(filepath.Join(t.fork, pkg), []string{envName + "=" + mutant}, bin, args...)
}
