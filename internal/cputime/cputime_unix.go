//go:build unix

// Package cputime says what a process has used of the processors: where several programs share
// a machine that is a measure, and time is none. Benchmarks use it, nothing else does.
package cputime

import (
	"syscall"
	"time"
)

// Used returns what this process has used so far, user and system together.
func Used() time.Duration { return usedBy(syscall.RUSAGE_SELF) }

// Children returns what children of this process have used that have ended, and theirs.
func Children() time.Duration { return usedBy(syscall.RUSAGE_CHILDREN) }

func usedBy(who int) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
