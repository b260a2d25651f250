//go:build unix

package main

import (
	"syscall"
	"time"
)

// cpuTime returns what this process has used so far, user and system together.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
