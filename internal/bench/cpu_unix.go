//go:build unix

package main

import (
	"syscall"
	"time"
)

// cpuTime returns what this process has used so far, user and system together.
func cpuTime() time.Duration { return usedBy(syscall.RUSAGE_SELF) }

// childrenCPU returns what children of this process have used that have ended, and theirs.
func childrenCPU() time.Duration { return usedBy(syscall.RUSAGE_CHILDREN) }

func usedBy(who int) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
