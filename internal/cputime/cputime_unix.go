//go:build unix

// Package cputime measures the CPU time of a process. Benchmarks use it, because elapsed time
// depends on other programs of the machine.
package cputime

import (
	"syscall"
	"time"
)

// Used returns the CPU time of this process, user and system.
func Used() time.Duration { return usedBy(syscall.RUSAGE_SELF) }

// Children returns the CPU time of ended child processes and their children.
func Children() time.Duration { return usedBy(syscall.RUSAGE_CHILDREN) }

func usedBy(who int) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
