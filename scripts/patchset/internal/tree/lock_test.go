// SPDX-License-Identifier: LGPL-3.0-or-later

package tree

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestLockKeepsOthersOff(t *testing.T) {
	tr, _ := sample(t)
	before := len(snapshot(t, tr.Root()))
	release, err := tr.Lock()
	if err != nil {
		t.Fatal(err)
	}
	other, err := Open(tr.Root(), ".journal")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Lock(); err == nil || !strings.Contains(err.Error(), "wait for it to end") {
		t.Errorf("locked twice: %v", err)
	}
	release()
	if after := len(snapshot(t, tr.Root())); after != before {
		t.Error("the lock left something behind")
	}
	release, err = other.Lock()
	if err != nil {
		t.Fatal(err)
	}
	release()
}

// What a killed run leaves of its lock holds nobody up, whoever has its process number now.
func TestLockEndsWithItsProcess(t *testing.T) {
	if dir := os.Getenv("RPCGUARD_HOLD"); dir != "" {
		tr, err := Open(dir, ".journal")
		if err != nil {
			t.Fatal(err)
		}
		release, err := tr.Lock()
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		os.Stdout.WriteString("held\n")
		io.Copy(io.Discard, os.Stdin)
		return
	}
	tr, _ := sample(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestLockEndsWithItsProcess$")
	cmd.Env = append(os.Environ(), "RPCGUARD_HOLD="+tr.Root())
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "held\n" {
		t.Fatal(line, err)
	}
	if _, err := tr.Lock(); err == nil {
		t.Error("locked although another process holds it")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if _, err := os.Stat(filepath.Join(tr.Root(), ".journal.lock")); err != nil {
		t.Fatal("the kill did not leave the file, so this shows nothing:", err)
	}
	release, err := tr.Lock()
	if err != nil {
		t.Fatal(err)
	}
	release()
}

func TestLockNotThroughSymlink(t *testing.T) {
	tr, _ := sample(t)
	far := filepath.Join(t.TempDir(), "far")
	if err := os.Symlink(far, filepath.Join(tr.Root(), ".journal.lock")); err != nil {
		t.Fatal(err)
	}
	if _, err := tr.Lock(); err == nil {
		t.Error("locked through a symlink")
	}
	if _, err := os.Lstat(far); err == nil {
		t.Error("a file was made outside")
	}
}
