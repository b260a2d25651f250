//go:build !linux

package gitrun

import "syscall"

// endWithUs does nothing. A child then ends at its closed pipes.
func endWithUs(*syscall.SysProcAttr) {}
