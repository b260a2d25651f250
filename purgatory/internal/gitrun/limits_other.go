//go:build !linux

package gitrun

import "syscall"

// EndWithUs does nothing: what a child reads and writes has an end when we have.
func EndWithUs(*syscall.SysProcAttr) {}

// LimitMemory does nothing: only git's own limit holds here.
func LimitMemory(int, uint64) error { return nil }

// LimitFiles does nothing.
func LimitFiles(int, uint64) error { return nil }

// ShellMemoryLimit is nothing: only git's own limit holds here.
const ShellMemoryLimit = ``
