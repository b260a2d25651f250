//go:build unix

package gitrun

import (
	"os/exec"
	"syscall"
	"time"
)

const killWait = 5 * time.Second

// group makes a command the leader of a process group, which is killed when the context ends.
func group(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = killWait
}

// An error only costs fairness.
func setNice(pid, nice int) { _ = syscall.Setpriority(syscall.PRIO_PGRP, pid, nice) }

// fileTooLarge is the signal that ends a child whose file exceeds its limit.
const fileTooLarge = syscall.SIGXFSZ
