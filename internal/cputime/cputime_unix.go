//go:build unix

// Package cputime says what a process has used of the processors: where several programs share
// a machine that is a measure, and time is none. Benchmarks use it, nothing else does.
package cputime

import (
	"syscall"
	"time"
)

// Used returns what this process has used so far, user and system together.
func Used() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
