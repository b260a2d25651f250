//go:build !linux

package gitfetch

import "syscall"

// endWithUs does nothing: what a child reads and writes has an end when we have.
func endWithUs(*syscall.SysProcAttr) {}

// limitMemory does nothing: only git's own limit holds here.
func limitMemory(int, uint64) error { return nil }

// limitFiles does nothing.
func limitFiles(int, uint64) error { return nil }
