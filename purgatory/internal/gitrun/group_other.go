//go:build !unix

package gitrun

import (
	"os/exec"
	"syscall"
)

// Group does nothing, because this system has no process groups of Unix.
func Group(*exec.Cmd) {}

// SetNice does nothing.
func SetNice(pid, nice int) {}

// FileTooLarge is the signal that ends a child whose file exceeds its limit. This system has none.
const FileTooLarge = syscall.Signal(-1)
