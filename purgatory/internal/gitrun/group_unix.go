//go:build unix

package gitrun

import (
	"os/exec"
	"syscall"
	"time"
)

const killWait = 5 * time.Second

// Group makes a command the leader of a process group, which is killed when the context ends.
func Group(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = killWait
}

// SetNice sets the scheduling priority of a process group. An error only costs fairness.
func SetNice(pid, nice int) { _ = syscall.Setpriority(syscall.PRIO_PGRP, pid, nice) }

// FileTooLarge is the signal that ends a child whose file exceeds its limit.
const FileTooLarge = syscall.SIGXFSZ
