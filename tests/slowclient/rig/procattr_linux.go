// SPDX-License-Identifier: LGPL-3.0-or-later

package rig

import (
	"os/exec"
	"runtime"
	"syscall"
)

// tieToParent makes the kernel end the child when this process is gone, however
// it went. The signal is bound to the thread that forks, so the caller's thread
// stays locked until the child has ended.
func tieToParent(cmd *exec.Cmd) (unlock func()) {
	runtime.LockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return runtime.UnlockOSThread
}
