//go:build !linux

package gitrun

import "syscall"

// EndWithUs does nothing. The pipes of a child are closed when this process ends.
func EndWithUs(*syscall.SysProcAttr) {}

// LimitMemory does nothing. Only git's own limit applies.
func LimitMemory(int, uint64) error { return nil }

// LimitFiles does nothing.
func LimitFiles(int, uint64) error { return nil }

// ShellMemoryLimit is empty. Only git's own limit applies.
const ShellMemoryLimit = ``
