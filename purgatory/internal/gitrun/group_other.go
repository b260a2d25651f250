//go:build !unix

package gitrun

import (
	"os/exec"
	"syscall"
)

// group does nothing, because this system has no process groups of Unix.
func group(*exec.Cmd) {}

func setNice(pid, nice int) {}

// fileTooLarge is no signal, because this system has none.
const fileTooLarge = syscall.Signal(-1)
